"""The step between staged and published: the match proof, the counts, the suite, and the resulting verdict."""

if __name__ == "quality_checks":  # in a checkout, by its folder's name
    from tidegate.names import replace

    replace(__name__, f"tidegate.{__name__}")
