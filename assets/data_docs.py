"""Links to the pages that suites leave in a lake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import dagster as dg

from tidegate.quality_checks.docs import QUALITY

DOCS_VARIABLE = "TIDEGATE_DOCS_URL"
"""The address that a lake's folder of pages is served at; `tidegate ui` sets it."""


def linked(page: str | None, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Metadata that leads to a page: where it lies, and a link where it is served. None of it without a page.

    A browser follows no file link of a page that came over HTTP, so there is none.
    """
    if not page:
        return {}
    told: dict[str, Any] = {"data docs file": dg.MetadataValue.path(page)}
    base = (os.environ if environment is None else environment).get(DOCS_VARIABLE, "")
    if base:
        parts = Path(page).parts
        below = parts[len(parts) - parts[::-1].index(QUALITY) :] if QUALITY in parts else parts[-1:]
        told["data docs"] = dg.MetadataValue.url(f"{base.rstrip('/')}/{quote(str(PurePosixPath(*below)))}")
    return told
