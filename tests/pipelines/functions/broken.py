"""A module that cannot be imported."""

raise RuntimeError("no database\nhere")
