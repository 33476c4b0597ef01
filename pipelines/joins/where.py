"""WHERE, taken apart: what it says of the probe row alone, and what needs the builds."""

from __future__ import annotations

from tidegate.pipelines.sql.model import Insert


def split_where(insert: Insert) -> tuple[str, str]:
    """Two Spark SQL conditions whose conjunction is the INSERT's WHERE; `true` where there is nothing to say.

    The first names columns of the probe only, so that it can be tested on a row that no build has matched.
    """
    builds = {join.alias for join in insert.joins}
    of_all = [term.expression for term in insert.conditions if term.aliases & builds]
    of_probe = [term.expression for term in insert.conditions if not term.aliases & builds]
    return _conjunction(of_probe), _conjunction(of_all)


def _conjunction(terms: list[str]) -> str:
    return " AND ".join(f"({term})" for term in terms) or "true"
