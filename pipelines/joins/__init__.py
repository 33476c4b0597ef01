"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow."""
