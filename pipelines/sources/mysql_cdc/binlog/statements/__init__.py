"""Statements that a binlog holds as text, and what they mean for the tables that are read."""
