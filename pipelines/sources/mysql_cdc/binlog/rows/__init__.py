"""Row events as columns: what a TABLE_MAP says of them, and where each value stands."""
