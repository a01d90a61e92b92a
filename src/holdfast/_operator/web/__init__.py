"""The operator page and its HTTP API, and the metrics endpoint of workers."""
