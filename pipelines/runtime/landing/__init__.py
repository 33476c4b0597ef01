"""A source table's epochs: planned, read, committed with their watermark, aligned with its group."""
