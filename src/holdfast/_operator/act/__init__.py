"""Actions: decisions of people on runs and on the store. Each is recorded with its actor."""
