"""Explanations: a run's state, what is known of it, and the safe next actions."""
