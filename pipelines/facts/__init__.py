"""What a lake knows, as frozen records: plain functions, which the terminal, JSON, Dagster and the report show."""
