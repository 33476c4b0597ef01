"""Who does what a hint says is through: the script that follows it compiles, with the connectors that are installed."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tests.pipelines.sql.test_errors import CASES, FIXTURE, error_of
from tidegate.pipelines.sql import SqlError, compile_script

CDC = """WITH ('connector' = 'mysql-cdc', 'hostname' = 'h', 'username' = 'u', 'password' = '${PW}',
    'database-name' = 'd', 'table-name' = 't')"""
TABLES = f"""
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) {CDC};
CREATE TABLE clicks (id INT, item INT, p AS PROCTIME()) WITH (
    'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE named (item INT, name STRING) WITH ('connector' = 'delta', 'path' = '/data/named');
CREATE TABLE shown (item INT, name STRING) WITH ('connector' = 'print');
"""
NAMED = """
INSERT INTO named SELECT c.item, u.name FROM {clicks} LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
"""
FIRST = NAMED.format(clicks="clicks AS c")

CHANGES = (
    "CREATE TABLE {} (id INT PRIMARY KEY NOT ENFORCED, v STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) "
    "WITH ('connector' = 'filesystem', 'path' = 'k', 'format' = 'debezium-json');"
)

FOLLOWED = {
    "a table in two roles": (
        f"{CHANGES.format('k')} INSERT INTO shown SELECT a.id, b.v FROM k AS a "
        "JOIN k FOR SYSTEM_TIME AS OF a.at AS b ON a.id = b.id",
        "declare it twice",
        f"{CHANGES.format('k')} {CHANGES.format('l')} INSERT INTO shown SELECT a.id, b.v FROM l AS a "
        "JOIN k FOR SYSTEM_TIME AS OF a.at AS b ON a.id = b.id",
    ),
}
"""What was written -> (the script, a part of the hint, the script that follows it)."""


@pytest.mark.parametrize("what", FOLLOWED)
def test_a_hint_leads_to_a_script_that_compiles(what: str) -> None:
    wrong, hint, followed = FOLLOWED[what]
    with pytest.raises(SqlError) as refused:
        compile_script(TABLES + wrong)
    assert hint in (refused.value.hint or "")
    compile_script(TABLES + followed)


@pytest.mark.parametrize(
    "probe",
    [
        f"CREATE TABLE c (id INT PRIMARY KEY NOT ENFORCED, item INT, p AS PROCTIME()) {CDC};",
        "CREATE TABLE c (id INT PRIMARY KEY NOT ENFORCED, item INT, p AS PROCTIME()) WITH ("
        "'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:9092', "
        "'key.format' = 'json', 'value.format' = 'json');",
    ],
    ids=["mysql-cdc", "upsert-kafka"],
)
def test_a_probe_that_its_connector_cannot_give_has_its_reason_and_no_hint(probe: str) -> None:
    """To join it in event time would be refused as well."""
    with pytest.raises(SqlError) as refused:
        compile_script(TABLES + probe + NAMED.format(clicks="c"))
    assert "can be the build side of a temporal join, not the probe side" in refused.value.what
    assert refused.value.hint is None


def test_a_build_that_can_be_nothing_else_is_not_to_be_declared_twice() -> None:
    table = f"CREATE TABLE e (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), WATERMARK FOR at AS at) {CDC};"
    first = "INSERT INTO named SELECT c.item, 'x' FROM clicks AS c JOIN e FOR SYSTEM_TIME AS OF c.p ON c.id = e.id;"
    again = "INSERT INTO shown SELECT a.id, 'x' FROM e AS a JOIN e FOR SYSTEM_TIME AS OF a.at AS b ON a.id = b.id"
    with pytest.raises(SqlError, match="e is a build side already") as refused:
        compile_script(TABLES + table + first + again)
    assert refused.value.hint is None


SUGGESTED = re.compile(r"did you mean `([^`]+)`")
HINTED = [case for case in CASES if case["hint"]]
UNFOLLOWED = ("the environment: ", "the documentation: ")
"""Hints that no script follows."""


def _followed(case: dict[str, Any], suggested: str | None) -> str:
    """The script that does what the hint of a case says: by `followed`, or with the suggested word in its place.

    `followed` is what stands at the marked place instead, or pairs of what is written and what is written instead.
    """
    marked = FIXTURE["tables"].get(case.get("with"), "") + case["script"]
    before, place, after = re.split("[⟦⟧]", marked)
    way = case.get("followed")
    if isinstance(way, str):
        return before + way + after
    if way is None:
        assert suggested is not None, "nobody follows this hint: add `followed` to the case, or `unfollowed`"
        words = [word for word in (place.strip("`'"), *re.findall(r"[\w.-]+", place)) if word != suggested]
        (wrong,) = get_close_matches(suggested, words, 1, 0.3)
        return before + place.replace(wrong, suggested) + after
    script = before + place + after
    for old, new in way:
        assert old in script, old
        script = script.replace(old, new)
    return script


@pytest.mark.parametrize("case", HINTED, ids=[case["message"] for case in HINTED])
def test_every_hint_of_the_catalogue_leads_to_a_script_that_compiles(case: dict[str, Any]) -> None:
    if "unfollowed" in case:
        assert case["unfollowed"].startswith(UNFOLLOWED)
        assert "followed" not in case
        return
    marked = FIXTURE["tables"].get(case.get("with"), "") + case["script"]
    meant = SUGGESTED.match(error_of(re.sub("[⟦⟧]", "", marked)).hint or "")
    followed = _followed(case, meant and meant[1])
    compile_script(followed, connectors=CONNECTORS)


def test_few_hints_point_to_what_no_script_does() -> None:
    assert sum("unfollowed" in case for case in HINTED) < 8
