"""Quarantined rows of a target: by epoch and reason, and the rows themselves."""
