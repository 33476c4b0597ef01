"""The tests that every connector has to pass, for pytest: `connector_tests` makes a class of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.protocol import Connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import Pipeline, compile_script
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.testing.harness import spark_session
from tidegate.pipelines.testing.rules import RULES, Rule
from tidegate.pipelines.testing.trace import Observer, Trace

OWN = ("arrival", "directory", "scratch")
"""The arguments of `feed` and `ddl` that the suite provides; all others are fixtures of the test module."""


def _nothing() -> None:
    """Nothing arrives."""


def connector_tests(
    connector: Connector,
    ddl: str | Callable[..., str],
    feed: Callable[..., object] = _nothing,
    *,
    arrivals: int = 2,
    role: Literal["build", "probe"] | None = None,
    environment: Mapping[str, str] | None = None,
    live_snapshot: bool = False,
    max_steps: int = 100,
) -> type:
    """A class of tests, one for each rule that the runtime builds on (docs/connectors.md).

        TestJsonFolder = connector_tests(CONNECTOR, "CREATE TABLE t (…) WITH ('path' = '{directory}', …)", feed)

    The table is read on a lake of its own before anything has arrived, then on another after each of `arrivals` calls
    of `feed`. Both are done once for all tests of the class.

    Args:
        connector: It need not be installed.
        ddl: The CREATE TABLE, with `{directory}` for the folder that `feed` gets; or a whole script, if the table needs
            others. A function makes it of `directory` and of fixtures, by their names.
        feed: Lets rows arrive. It takes what it names of `arrival` (1, 2, …), `directory` (a Path), `scratch` (the
            `SourceContext.scratch` of the next run), and fixtures.
        role: What the table is read as: by default a build side if it has a primary key, and a probe side if not.
        environment: Where `${VAR}` of the DDL is looked up.
        live_snapshot: Steps of the bounded phase read a table as it is now, and `_seq` says as of when. Read again
            after changes, they give other rows; at once, they may have another `_rowtime`.
        max_steps: Steps of one run from which on it counts as one that does not end.

    The tests raise RuleBroken, which names the rule, the step, and what to change.
    """
    written = partial(_placed, ddl) if isinstance(ddl, str) else ddl
    case = _Case(connector, written, feed, arrivals, role, environment or {}, live_snapshot, max_steps)
    tests = {f"test_{name}": case.test(rule) for name, rule in RULES.items()}
    return type("ConnectorTests", (), {"__doc__": f"The connector '{connector.spec.name}'.", **tests})


@dataclass
class _Case:
    """One connector and one table: what `connector_tests` takes. What was `seen` of it is remembered for all rules."""

    connector: Connector
    ddl: Callable[..., str]
    feed: Callable[..., object]
    arrivals: int
    role: Literal["build", "probe"] | None
    environment: Mapping[str, str] = field(repr=False)
    live_snapshot: bool
    max_steps: int
    seen: Sequence[Trace] | None = None

    @property
    def fixtures(self) -> list[str]:
        """The fixtures that `ddl` and `feed` take."""
        asked = [name for function in (self.ddl, self.feed) for name in inspect.signature(function).parameters]
        return [name for name in dict.fromkeys(asked) if name not in OWN]

    def test(self, rule: Rule) -> Callable[..., None]:
        """The test of a rule, with the fixtures in its signature, where pytest looks for them."""

        def test(own: object, tmp_path: Path, **fixtures: Any) -> None:
            if self.seen is None:
                self.seen = self._observe(tmp_path, fixtures)
            rule.check(self.seen)

        names = ["self", *dict.fromkeys(["tmp_path", *self.fixtures])]
        made = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        test.__signature__ = inspect.Signature(made)
        test.__name__, test.__doc__ = f"test_{rule.name}", f"{rule.sentence[0].upper()}{rule.sentence[1:]}."
        return test

    def _observe(self, tmp_path: Path, fixtures: Mapping[str, Any]) -> Sequence[Trace]:
        """The traces from before anything has arrived, and from all that the test makes arrive."""
        directory = tmp_path / "source"
        directory.mkdir()
        with registry.given(self.connector):
            found = {**fixtures, "tmp_path": tmp_path, "directory": directory}
            pipeline, table = self._table(_called(self.ddl, found))
            traces = []
            for fed in (False, True):
                watch = Observer(
                    pipeline=pipeline,
                    table=table,
                    spec=self.connector.spec,
                    spark=spark_session(),
                    directory=tmp_path / ("fed" if fed else "empty"),
                    environment=self.environment,
                    fed=fed,
                    live_snapshot=self.live_snapshot,
                    max_steps=self.max_steps,
                )
                traces.append(watch.trace)
                for arrival in range(1, self.arrivals + 1) if fed else (0,):
                    if fed:
                        scratch = watch.lake.scratch(table.name)
                        _called(self.feed, {**found, "arrival": arrival, "scratch": scratch})
                    watch.tick()
                    if not watch.run():
                        break
                watch.read_later()
            return traces

    def _table(self, script: str) -> tuple[Pipeline, Table]:
        """The table of the connector, in a pipeline that reads it: where the script has no INSERT, it gets one."""
        name, pipeline = self.connector.spec.name, compile_script(script)
        found = [table for table in pipeline.tables.values() if table.connector == name and table.role != "sink"]
        if len(found) != 1:
            raise PlanningError(
                f"the DDL has {len(found)} tables of 'connector' = '{name}' that are read, and the suite looks at one",
                where=f"connector_tests of '{name}'",
                state="nothing was run",
                next_command="write one CREATE TABLE of this connector; one that needs others may have them beside it",
            )
        if not pipeline.inserts:
            role = self.role or ("build" if found[0].primary_key else "probe")
            pipeline = compile_script(f"{script.rstrip().rstrip(';')};\n{_reader(found[0], role)}")
        return pipeline, pipeline.table(found[0].name)


def _placed(ddl: str, directory: Path) -> str:
    return ddl.replace("{directory}", str(directory))


def _called(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    return function(**{name: given[name] for name in inspect.signature(function).parameters})


def _reader(table: Table, role: str) -> str:
    """SQL that reads `table` in this role: the left or the right input of a join, or the only one."""
    columns = [column for column in table.columns if column.name in table.primary_key]
    columns = columns or list(table.physical_columns)[:1]
    declared = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    names = [quoted(column.name) for column in columns]
    out = f"CREATE TABLE connector_tests_out ({declared}) WITH ('connector' = 'print');\n"
    into, name = "INSERT INTO connector_tests_out SELECT", quoted(table.name)
    if role == "probe":
        return f"{out}{into} {', '.join(names)} FROM {name};"
    key = " AND ".join(f"c.{each} = b.{each}" for each in names)
    chosen = ", ".join(f"c.{each}" for each in names)
    return (
        f"{out}CREATE TABLE connector_tests_probe ({declared}, `at` AS PROCTIME()) WITH ('connector' = 'scripted');\n"
        f"{into} {chosen} FROM connector_tests_probe AS c JOIN {name} FOR SYSTEM_TIME AS OF c.`at` AS b ON {key};"
    )
