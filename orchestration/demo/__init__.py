"""The demo: clicks joined to a MariaDB table that is still loading, and a proof that shares no code with the join.

site       where everything of it lies, and what the script finds in its environment
stage      what will be downloaded; an embedded MariaDB with `user_info`; the environment
writer     a process of its own that keeps changing `user_info`, and its journal: what it committed, in order
proof      replays the journal to every pinned position and compares each output row
verdict    the same clicks joined as they arrived, and what a newcomer reads
play       runs of the pipeline's Dagster job until every click is released; all of it, from start to verdict
"""
