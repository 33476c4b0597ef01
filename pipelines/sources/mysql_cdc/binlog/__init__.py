"""Bounded reads of a MySQL or MariaDB binlog into Arrow and Spark.

From bytes to rows: `transport` gives chunks of whole events; `stream` places and checks them; `decoder` follows
statements and table ids; `table_reader` finds row images (`lockstep`), has `columns` decode them, and adds what a
changelog carries. `scan` finds transaction borders. `reading` hands it all to Spark.
"""
