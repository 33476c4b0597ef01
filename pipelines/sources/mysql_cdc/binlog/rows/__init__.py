"""Row events as columns: what a TABLE_MAP declares of them, and where each value is."""
