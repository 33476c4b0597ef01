"""What a function remembers: declared, checked, held for one key in cells, stored for a bucket of keys."""
