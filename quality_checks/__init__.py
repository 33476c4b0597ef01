"""What stands between staged and published: the match proof, the counts, the suite, and the verdict they add up to."""
