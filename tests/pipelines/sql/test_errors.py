"""Every error that a script can have, by fixture: where it points, what it says, what it suggests."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.sql import SqlError, compile_script

FIXTURE = tomllib.loads((Path(__file__).parents[2] / "fixtures" / "sql" / "errors.toml").read_text())
CASES: list[dict[str, Any]] = FIXTURE["error"]


def error_of(script: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        compile_script(script, connectors=CONNECTORS)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=[case["message"] for case in CASES])
def test_a_wrong_script_is_refused_at_the_place_with_a_hint(case: dict[str, Any]) -> None:
    marked = FIXTURE["tables"].get(case.get("with"), "") + case["script"]
    start, end = marked.index("⟦"), marked.index("⟧") - 1
    script = marked.replace("⟦", "").replace("⟧", "")
    error = error_of(script)
    assert case["message"] in error.what
    assert case["hint"] in (error.hint or "")
    assert bool(case["hint"]) == (error.hint is not None) or case.get("any_hint")
    line = script[:start].count("\n") + 1
    column = start - (script[:start].rfind("\n") + 1) + 1
    assert (error.line, error.column) == (line, column), str(error)
    width = len(script[start:end].split("\n")[0]) or 1
    shown, carets = error.excerpt.split("\n")
    assert shown.startswith(f"  {line} | ")
    assert carets.count("^") == width


def test_an_error_says_where_what_the_state_is_and_what_to_do_next() -> None:
    with pytest.raises(SqlError) as caught:
        compile_script("CREATE TABLE t (\n  a INTT\n)", path="jobs/clicks.sql", connectors=CONNECTORS)
    assert str(caught.value) == (
        "jobs/clicks.sql:2:5: there is no type INTT\n"
        "  2 |   a INTT\n"
        "    |     ^^^^\n"
        "  hint:  did you mean `INT` or `BIGINT`?\n"
        "  state: nothing was run\n"
        "  next:  correct the script, then: tidegate explain jobs/clicks.sql"
    )
    assert isinstance(caught.value, TidegateError)
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_wide_characters_and_tabs_keep_the_carets_in_line() -> None:
    error = error_of("CREATE TABLE t (\n\t`値段` INT, x INTT\n)")
    shown, carets = error.excerpt.split("\n")
    assert shown == "  2 | \t`値段` INT, x INTT"
    assert carets == "    | \t              ^^^^"


def test_a_long_line_is_cut_around_the_place() -> None:
    columns = ", ".join(f"column_{number} INT" for number in range(100))
    error = error_of(f"CREATE TABLE t ({columns}, x INTT, {columns})")
    shown, carets = error.excerpt.split("\n")
    assert len(shown) < 180
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "INTT"


def test_an_error_at_the_end_points_behind_the_last_word() -> None:
    error = error_of("CREATE TABLE t (\n  a INT\n\n-- no more\n")
    assert error.what == "expected `,` or `)`, found the end of the script"
    assert (error.line, error.column) == (2, 8)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    deep = "(" * 5000 + "1" + ")" * 5000
    error = error_of(f"CREATE TABLE t (a INT, b AS {deep}) WITH ('connector' = 'scripted')")
    assert "nested too deeply" in error.what


def test_a_deep_chain_of_operators_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    children = exp.Expression.iter_expressions

    def counted(node: exp.Expr, *args: bool) -> Iterator[exp.Expr]:
        nonlocal looks
        looks += 1
        return children(node, *args)

    monkeypatch.setattr(exp.Expression, "iter_expressions", counted)
    chain = " + ".join(["a"] * 2000)
    error = error_of(f"CREATE TABLE t (a INT, b AS {chain}) WITH ('connector' = 'scripted')")
    assert "nested too deeply" in error.what
    assert 0 < looks < 10 * 2000, "once for each of its parts would be 500 times 2,000"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a INT, b AS {}", "the number has more than 38 digits"),
        ("a INT, b AS a + {}", "the number has more than 38 digits"),
        ("a INT, b AS a + 1e{}", "greater than a DOUBLE"),
        ("a TIMESTAMP({})", "has 4301 digits"),
        ("a DECIMAL({}, 2)", "has 4301 digits"),
        ("a TIMESTAMP(3), b AS a - INTERVAL '{}' SECOND", "does not fit"),
        ("a TIMESTAMP(3), b AS a - INTERVAL '{}' YEAR", "does not fit"),
    ],
)
def test_a_number_that_python_itself_would_not_read_is_an_error_at_its_place(text: str, what: str) -> None:
    error = error_of(f"CREATE TABLE t ({text.format('9' * 4301)}) WITH ('connector' = 'scripted')")
    assert what in error.what
    assert error.line == 1


def test_a_long_chain_of_conditions_is_no_deep_nesting() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(2000))
    compile_script(f"CREATE TABLE t (a INT, b AS {chain}) WITH ('connector' = 'scripted')", connectors=CONNECTORS)
