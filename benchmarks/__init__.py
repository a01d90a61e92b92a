"""How fast Holdfast is, relative to a raw floor measured in the same run."""
