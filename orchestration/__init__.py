if __name__ == "orchestration":  # in a checkout, by its folder's name
    from tidegate.names import replace

    replace(__name__, f"tidegate.{__name__}")
