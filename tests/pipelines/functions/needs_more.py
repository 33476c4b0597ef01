"""A module that needs one that is not there."""

import no_such_package_anywhere  # noqa: F401  # type: ignore[import-not-found]
