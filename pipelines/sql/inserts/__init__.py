"""INSERT INTO … SELECT, looked up and checked: temporal joins, and windows with their aggregates."""
