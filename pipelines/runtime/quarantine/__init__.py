"""Rows that were kept out of a target: by epoch and reason, and the rows themselves."""
