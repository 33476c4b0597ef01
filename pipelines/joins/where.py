"""WHERE, taken apart: what it says of the probe row alone, and what needs the builds."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp, parse_one

from pipelines.sql.model import Insert


def split_where(insert: Insert) -> tuple[str, str]:
    """Two Spark SQL conditions whose conjunction is the INSERT's WHERE; `true` where there is nothing to say.

    The first names columns of the probe only, so that it can be tested on a row that no build has matched.
    """
    if insert.where is None:
        return "true", "true"
    condition = parse_one(insert.where, dialect="spark").unnest()
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    builds = {join.alias for join in insert.joins}
    of_all = [part for part in parts if any(column.table in builds for column in part.find_all(exp.Column))]
    of_probe = [part for part in parts if part not in of_all]
    return _conjunction(of_probe), _conjunction(of_all)


def _conjunction(parts: Sequence[exp.Expr]) -> str:
    return exp.and_(*parts).sql(dialect="spark") if parts else "true"
