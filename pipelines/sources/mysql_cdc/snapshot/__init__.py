"""The bounded phase: chunks of a table, each read in one read view and placed exactly in the server's log.

plan ─> chunks (by key) ─> view (the cut) ─> query ─> packets ─> values ─> canonical ─> rows (to Spark) or files
"""
