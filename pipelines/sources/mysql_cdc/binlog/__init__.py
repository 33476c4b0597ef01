"""Bounded reads of a MySQL or MariaDB binlog into Arrow and Spark."""
