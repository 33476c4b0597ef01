"""Change data capture of any database's table: an exact snapshot in chunks, then the database's log of changes.

    chunks ──> each read in a read view, placed in the log by its cut ──> the log from before the first cut ──> the flip

`source.CdcSource` plans and lands the steps; `database.Database` lists what one kind of database adds: its positions,
its cuts, its SQL, its log. Nothing here depends on which one it is.
"""
