"""A module that can not be imported."""

raise RuntimeError("no database\nhere")
