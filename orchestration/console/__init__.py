"""What a person sees of the `tidegate` command: bars and messages on stderr, results on stdout."""
