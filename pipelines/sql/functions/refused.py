"""Functions of Flink SQL that a pipeline must not or cannot have, and why."""

from __future__ import annotations

RECOMPUTE = "a recomputation would give another value"
ROWS_STAY = (
    "there are no aggregates but over windows, in SELECT and HAVING: every probe row stays a row of its own unless it "
    "is read FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES))"
)

WINDOWS_STAND = (
    "windows stand in FROM: FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES)) GROUP BY "
    "window_start, window_end"
)

AGAIN_OTHERWISE = {
    "RAND": "derive it from a column: MOD(user_id, 100)",
    "RAND_INTEGER": "derive it from a column: MOD(user_id, 100)",
    "UUID": "derive it from the key: MD5(CAST(user_id AS STRING))",
    "CURRENT_TIME": "use CURRENT_TIMESTAMP, the plan's instant",
    "LOCALTIME": "use LOCALTIMESTAMP, the plan's instant",
    "CURRENT_DATABASE": "leave it out",
    "CURRENT_WATERMARK": "the watermark log holds every epoch's watermark",
}
"""Functions whose value depends on when, or how often, a query runs, with what to use instead."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = _words("""
    APPROX_COUNT_DISTINCT ARRAY_AGG AVG COLLECT COUNT CUME_DIST DENSE_RANK FIRST_VALUE GROUPING GROUPING_ID
    GROUP_ID JSON_ARRAYAGG JSON_OBJECTAGG LAG LAST_VALUE LEAD LISTAGG MAX MIN NTILE PERCENTILE PERCENT_RANK RANK
    ROW_NUMBER STDDEV_POP STDDEV_SAMP SUM VARIANCE VAR_POP VAR_SAMP
""")

WINDOWS = frozenset(["CUMULATE", "HOP", "SESSION", "TUMBLE", "HOP_END", "HOP_START", "TUMBLE_END", "TUMBLE_START"])

DDL_ONLY = {
    "SYSTEM_ROWTIME": "declare a computed column: rowtime AS SYSTEM_ROWTIME()",
    **dict.fromkeys(
        ("SYSTEM_WATERMARK", "SOURCE_WATERMARK"),
        "it is a watermark: WATERMARK FOR rowtime AS SYSTEM_WATERMARK(), with rowtime AS SYSTEM_ROWTIME()",
    ),
}
"""Functions that are only allowed in one place of a CREATE TABLE."""

ABSENT = _words("""
    ARRAY_APPEND ARRAY_CONCAT ARRAY_EXCEPT ARRAY_INTERSECT ARRAY_JOIN ARRAY_POSITION ARRAY_PREPEND ARRAY_REMOVE
    ARRAY_SLICE ARRAY_SORT ARRAY_UNION ELEMENT ELT INITCAP IS_ALPHA IS_DECIMAL IS_DIGIT JSON JSON_ARRAY
    JSON_EXISTS JSON_OBJECT JSON_QUERY JSON_QUOTE JSON_STRING JSON_UNQUOTE MAP_ENTRIES MAP_FROM_ARRAYS MAP_UNION
    PARSE_JSON PRINTF REGEXP_EXTRACT_ALL TRUNCATE TRY_PARSE_JSON TYPEOF
""")
"""Built-in functions of Flink that this dialect does not have (yet). Spark has some of the same name (INITCAP,
ARRAY_UNION, TYPEOF), which are not known to mean the same."""

SYNTAX = frozenset(["ARRAY", "CAST", "MAP", "ROW", "TRY_CAST"])
"""Syntax that looks like a call."""

TAKEN = frozenset({*AGAIN_OTHERWISE, *AGGREGATES, *WINDOWS, *DDL_ONLY, *SYNTAX})
"""Names that a script's own function cannot have, beside those of the built-in ones. It may have a name in ABSENT."""
