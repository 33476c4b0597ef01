"""Bounded reads of a MySQL or MariaDB binlog into Arrow and Spark.

From bytes to rows: `transport` (or `framing.read_file`) gives chunks of whole events; `stream` places and checks them;
`decoder` follows statements and table ids; `table_reader` finds row images (`lockstep`) and has `columns` decode them;
`output` adds what a changelog carries. `scan` finds transaction borders. `reading` hands it all to Spark.
"""
