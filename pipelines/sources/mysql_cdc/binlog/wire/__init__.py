"""Bytes of a binlog as whole, checked events, each with its place."""
