"""Published epochs recomputed as plain SQL over the changelog, and compared; shares no code with the join."""
