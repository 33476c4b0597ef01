"""What `tidegate maintain` did, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.pipelines.runtime.maintenance import Maintained


def of_maintained(found: Sequence[Maintained]) -> dict[str, Any]:
    """The same as JSON values; sizes in bytes."""
    return {"tables": [_table(item) for item in found], "freed": sum(item.freed for item in found)}


def _table(item: Maintained) -> dict[str, Any]:
    retained = item.retained
    what, number = (retained.what, retained.removed) if retained else ("", None)
    return {
        "table": item.name,
        "skipped": item.skipped or None,
        "files before": item.files_before,
        "files": item.files_after,
        "files removed": sum(part.removed for part in item.tidied),
        "freed": item.freed,
        "versions": retained.looked_at if retained and what == "old versions" else None,
        "versions removed": number if what == "old versions" else None,
        "landed rows removed": number if what == "landed rows" else None,
        "quarantined rows removed": number if what == "quarantined rows" else None,
        "nothing removed because": None if retained is None else retained.reason or None,
        "note": item.note,
    }


def upkeep_lines(found: Sequence[Maintained]) -> list[str]:
    """A line a table."""
    return [f"{item.name}: {_told(item)}" for item in found]


def _told(item: Maintained) -> str:
    if item.skipped:
        return f"passed over, {item.skipped}"
    told = [f"{item.files_before:,} files, now {item.files_after:,}", f"{item.freed / 1e6:,.1f} MB freed"]
    if item.retained is not None:
        told.append(
            f"{item.retained.removed:,} {item.retained.what} gone" if item.retained.removed else item.retained.reason
        )
    told += [item.note] if item.note else []
    return ", ".join(told)
