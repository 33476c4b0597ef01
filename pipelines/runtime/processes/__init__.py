"""Process functions over tables: an epoch of a process is planned, staged, judged and published like an INSERT's.

landed epochs of the inputs -> steps -> tasks by bucket of keys -> outputs and state, one commit each
"""
