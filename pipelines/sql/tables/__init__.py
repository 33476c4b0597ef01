"""CREATE TABLE, clause by clause, looked up and checked; and a watermark as properties."""
