"""Views: what people and programs see of runs, queues and the store. Nothing here writes."""
