"""One task's part of an epoch: rows in by key, the function called, rows and state out."""
