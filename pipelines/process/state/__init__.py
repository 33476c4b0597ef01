"""The state of a function: declared, checked, held for one key in cells, stored for a bucket of keys."""
