"""Plan an epoch, run it, commit it; again and again."""
