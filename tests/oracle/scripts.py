"""Scripts as data: statements over source tables and over one another's targets, as SQL and row by row in plain Python.

Each table has the columns `id`, `k`, `n`, `ts`. A probe's row goes through the tree of its statement: `Map` changes it
or leaves it out, `Unnest` makes several rows of it, `Union` takes it from one of several places, `Join` adds a build's
value to its `n`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

PROBES, BUILDS = ("a", "b", "c"), ("users", "rates")
WITH = "WITH ('connector' = 'scripted'{})"
ELEMENTS = "CASE MOD(x.id, 4) WHEN 1 THEN ARRAY[1] WHEN 2 THEN ARRAY[1, 2] WHEN 3 THEN ARRAY[1, 2, 3] END"
MORE, STEP = ", WATERMARK FOR ts AS ts", "id + {}, k + {}, n, ts"


class Row(NamedTuple):
    """`ts` in ms after the start, None for none. `origin`: its row of a source, which it was made of; `late`: it was
    kept back on its way by a quarantine."""

    id: int
    k: int
    n: int | None
    ts: int | None
    origin: Any = None
    late: bool = False

    @property
    def values(self) -> tuple[int, int, int | None, int | None]:
        return self[:4]


@dataclass(frozen=True)
class Map:
    """SELECT id + `add`, k + `shift`, n, ts FROM `of` WHERE MOD(id, `leaves_out`) <> 0, or without a WHERE for 0."""

    of: Node
    add: int = 0
    shift: int = 0
    leaves_out: int = 0
    style: Literal["brackets", "with", "view"] = "brackets"

    def keeps(self, row: Row) -> bool:
        return not self.leaves_out or row.id % self.leaves_out != 0

    def made(self, row: Row) -> Row:
        return row._replace(id=row.id + self.add, k=row.k + self.shift)


@dataclass(frozen=True)
class Union:
    """UNION ALL."""

    of: tuple[Node, ...]
    style: Literal["brackets", "with", "view"] = "brackets"


@dataclass(frozen=True)
class Unnest:
    """`of`, once for each element of an array that depends on `id` (of 0 to 3 numbers, the first ones), which are added
    to `k` and, 5,000 times, to `id`. `outer`: a row without elements stays as it is, else it is left out."""

    of: Node
    outer: bool = False
    style: Literal["brackets", "with", "view"] = "brackets"

    def rows(self, row: Row) -> list[Row | None]:
        elements = range(1, row.id % 4 + 1)
        made: list[Row | None] = [row._replace(id=row.id + 5000 * each, k=row.k + each) for each in elements]
        return made or [row if self.outer else None]


@dataclass(frozen=True)
class Join:
    """`of` JOIN `build` on `k`, which adds its `v` to `n`, or the `id` of a target. `strict`: a version of which that
    is a multiple of 5 is no match, by ON, or (`by_view`) by the WHERE of a view of the build; `leaves_out`: WHERE
    leaves out multiples of 3."""

    of: Node
    build: str
    kind: Literal["", "LEFT "] = ""
    strict: bool = False
    by_view: bool = False
    leaves_out: bool = False
    style: Literal["brackets", "with", "view"] = "brackets"


Node = str | Map | Union | Unnest | Join


def leaves(node: Node) -> list[tuple[str, tuple[Node, ...]]]:
    """The tables that a tree takes rows of, in order, each with the nodes which its rows go through."""
    if isinstance(node, str):
        return [(node, ())]
    parts = node.of if isinstance(node, Union) else (node.of,)
    return [(table, (*path, node)) for part in parts for table, path in leaves(part)]


def joins(node: Node) -> list[Join]:
    """The joins of a tree, each once."""
    found = {id(each): each for _, path in leaves(node) for each in path if isinstance(each, Join)}
    return list(found.values())


@dataclass(frozen=True)
class Statement:
    """INSERT INTO `target`. `most`: 'release.max-rows'. `window`: the width (ms) of the windows of which it counts the
    rows of a table by `k`; 0 for the rows of a tree. `timed`: the time of its rows goes through it."""

    target: str
    tree: Node
    time: Literal["ts", "p"] = "ts"
    policy: str = "quarantine"
    most: int = 0
    window: int = 0
    timed: bool = True

    @property
    def tables(self) -> list[str]:
        """What it takes rows of, by branch."""
        return [table for table, _ in leaves(self.tree)]

    @property
    def builds(self) -> list[str]:
        return [join.build for join in joins(self.tree)]

    @property
    def in_event_time(self) -> bool:
        return self.time == "ts" and bool(self.builds)

    @property
    def united(self) -> bool:
        return any(isinstance(node, Union | Unnest) for node in leaves(self.tree)[0][1])

    def entries(self, number: int, row: Row) -> list[Row | None]:
        """The rows that a row of a branch's table becomes by UNNEST; None where a WHERE before it leaves it out, or it
        has no elements."""
        found: list[Row | None] = [row]
        path = leaves(self.tree)[number][1]
        for node in path[: len(path) - len(self._behind(number))]:
            if isinstance(node, Map):
                found = [each and node.made(each) if each and node.keeps(each) else None for each in found]
            elif isinstance(node, Unnest):
                found = [made for each in found for made in (node.rows(each) if each else [None])]
        return found

    def mapped(self, number: int, row: Row) -> Row | None:
        """One of the `entries` as far as no build is needed; None where WHERE leaves it out."""
        for node in self._behind(number):
            if isinstance(node, Map):
                if not node.keeps(row):
                    return None
                row = node.made(row)
        return row

    def _behind(self, number: int) -> tuple[Node, ...]:
        """The nodes behind the last UNNEST, if there is one."""
        path = leaves(self.tree)[number][1]
        several = [place for place, node in enumerate(path) if isinstance(node, Unnest)]
        return path[several[-1] + 1 if several else 0 :]

    def result(self, number: int, row: Row, found: Callable[[str, Row], int | None], policy: str) -> Row | str:
        """What becomes of one of the `entries`: a row, "dropped", or "quarantined"; by the version that a build has for
        a row."""
        if self.mapped(number, row) is None:  # WHERE on the probe's row alone is tested first
            return "dropped"
        if self.in_event_time and row.ts is None:
            return "quarantined"
        left_out = False
        for node in self._behind(number):
            if isinstance(node, Map):
                row = node.made(row)
            elif isinstance(node, Join):
                value = found(node.build, row)
                value = None if node.strict and value is not None and value % 5 == 0 else value
                if value is None and (policy != "publish" or not node.kind):
                    return "dropped" if policy == "publish" else "quarantined"
                left_out |= node.leaves_out and value is not None and value % 3 == 0
                row = row._replace(n=None if value is None or row.n is None else row.n + value)
        return "dropped" if left_out else row


@dataclass
class _Text:
    """One statement as SQL: its views and its queries of WITH, in the order of their making."""

    of: Statement
    views: list[str] = field(default_factory=list)
    withs: list[str] = field(default_factory=list)

    def written(self) -> str:
        of, columns = self.of, "id, k, n, ts"
        if of.window:
            assert isinstance(of.tree, str)
            columns = "k, k, CAST(COUNT(*) AS INT), window_end"
            size = f"INTERVAL '0.{of.window:03}' SECOND"
            query = f"SELECT {columns} FROM TABLE(TUMBLE(TABLE {of.tree}, DESCRIPTOR(ts), {size})) "
            query += "GROUP BY window_start, window_end, k"
        else:
            query = self._query(of.tree, "", top=True)
        beside = f"WITH {', '.join(self.withs)} " if self.withs else ""
        return "".join(self.views) + f"INSERT INTO {of.target} {beside}{query};\n"

    def _query(self, node: Node, p: str, *, top: bool = False, in_view: bool = False) -> str:
        if isinstance(node, str):
            return f"SELECT id, k, n, ts{p} FROM {node}"
        if isinstance(node, Union):
            parts = [self._query(part, p, in_view=in_view) for part in node.of]
            return " UNION ALL ".join(
                f"({text})" if isinstance(part, Union) else text for text, part in zip(parts, node.of, strict=True)
            )
        inner = self._relation(node.of, ", p" if self.of.time == "p" else "", in_view)
        if isinstance(node, Map):
            where = f" WHERE MOD(id, {node.leaves_out}) <> 0" if node.leaves_out else ""
            return f"SELECT id + {node.add} AS id, k + {node.shift} AS k, n, ts{p} FROM {inner} AS x{where}"
        if isinstance(node, Unnest):
            p, more = p and ", x.p", "COALESCE(e.v, 0)"
            join = ("LEFT JOIN", " ON TRUE") if node.outer else ("CROSS JOIN", "")
            text = f"SELECT x.id + 5000 * {more} AS id, x.k + {more} AS k, x.n, x.ts{p} FROM {inner} AS x "
            return text + f"{join[0]} UNNEST({ELEMENTS}) AS e (v){join[1]}"
        build, strict, v = node.build, node.strict and not node.by_view, "v" if node.build in BUILDS else "id"
        if node.strict and node.by_view:
            build = f"{self.of.target}{len(self.views)}"
            query = f"SELECT k AS j, {v} FROM {node.build} WHERE MOD({v}, 5) <> 0"
            self.views.append(f"CREATE VIEW {build} (k, {v}) AS {query};\n")
        p = p and ", x.p"
        text = f"SELECT x.id, x.k, x.n + y.{v} AS n, x.ts{p} FROM {inner} AS x "
        text += f"{node.kind}JOIN {build} FOR SYSTEM_TIME AS OF x.{self.of.time} AS y ON y.k = x.k"
        text += f" AND MOD(y.{v}, 5) <> 0" if strict else ""
        return text + (f" WHERE MOD(COALESCE(y.{v}, 1), 3) <> 0" if node.leaves_out else "")

    def _relation(self, node: Node, p: str, in_view: bool) -> str:
        """What FROM names."""
        if isinstance(node, str):
            return node
        style = "brackets" if in_view and node.style == "with" else node.style
        query = self._query(node, p, in_view=in_view or style == "view")
        if style == "brackets":
            return f"({query})"
        name = f"{self.of.target}{len(self.views)}{style[0]}{len(self.withs)}"
        if style == "view":
            self.views.append(f"CREATE VIEW {name} AS {query};\n")
        else:
            self.withs.append(f"{name} AS ({query})")
        return name


@dataclass(frozen=True)
class Script:
    """Some statements, each behind those whose targets it reads. `order`: in which they are written."""

    statements: tuple[Statement, ...]
    order: Sequence[int] = ()

    @property
    def sql(self) -> str:
        text = "".join(
            f"CREATE TABLE {name} (id INT, k INT, n INT, ts TIMESTAMP(3){MORE}, p AS PROCTIME()) {WITH.format('')};\n"
            for name in PROBES
        )
        text += "".join(
            f"CREATE TABLE {name} (k INT PRIMARY KEY NOT ENFORCED, v INT, ts TIMESTAMP(3){MORE}) {WITH.format('')};\n"
            for name in BUILDS
        )
        for each in self.statements:
            options = f", 'gate.on-unmatched' = '{each.policy}'"
            options += f", 'release.max-rows' = '{each.most}'" if each.most else ""
            time = f"{MORE if each.timed and not each.window else ''}, p AS PROCTIME()"
            key = " PRIMARY KEY NOT ENFORCED" if any(each.target in other.builds for other in self.statements) else ""
            columns = f"id INT, k INT{key}, n INT, ts TIMESTAMP(3){time}"
            text += f"CREATE TABLE {each.target} ({columns}) {WITH.format(options)};\n"
        numbers = self.order or range(len(self.statements))
        return text + "".join(_Text(self.statements[number]).written() for number in numbers)

    def readers(self, name: str) -> list[Statement]:
        """The statements that take rows of a table, or join it."""
        return [each for each in self.statements if name in (*each.tables, *each.builds)]


def drawn(chance: random.Random, *, calm: bool = False) -> Script:
    """One to four statements by chance. `calm`: in event time alone, and no epoch is held."""
    timed, made, versioned = dict.fromkeys(PROBES, True), list[Statement](), set(PROBES)

    def styled() -> Any:
        return chance.choice(["brackets", "with", "view"])

    def mapped(of: Node) -> Map:
        leaves_out = chance.choice([0, 0, 3, 7])
        return Map(of, chance.choice([0, 1000, 2000]), chance.choice([0, 0, 1]), leaves_out, styled())

    def joined(of: Node, builds: Sequence[str] = BUILDS) -> Join:
        return Join(
            mapped(of) if chance.random() < 0.2 else of,
            chance.choice(builds),
            chance.choice(["", "LEFT "]),
            strict=chance.random() < 0.25,
            by_view=chance.random() < 0.5,
            leaves_out=chance.random() < 0.25,
            style=styled(),
        )

    def rows(deep: int = 0) -> Node:
        """Rows of one or several tables, of the newest targets above all."""
        part = deep and chance.random() < 0.3
        if deep < 2 and not part and chance.random() < 0.45 - 0.2 * deep:
            parts = [rows(deep + 1) for _ in range(chance.randint(2, 3))]
            first, *more = [joined(part) if chance.random() < 0.3 else part for part in parts]
            first = first.of[0] if isinstance(first, Union) else first  # in brackets, it would stand in front
            if chance.random() < 0.3:
                more.append(mapped(leaves(first)[0][0]))
            return Union((first, *more), styled())
        name = chance.choice([*PROBES, *[each.target for each in made for _ in range(3)]])
        if chance.random() < 0.2:
            return Unnest(mapped(name) if chance.random() < 0.3 else name, chance.random() < 0.5, styled())
        return mapped(name) if chance.random() < 0.3 else name

    for number in range(chance.randint(1, 4)):
        if number and chance.random() < 0.1:
            of = chance.choice([name for name, has_time in timed.items() if has_time])
            made.append(Statement(f"t{number}", of, window=20, timed=False))
        else:
            tree = rows()
            has_time = all(timed[table] for table, _ in leaves(tree))
            time = "ts" if has_time and (calm or chance.random() < 0.6) else "p"
            takes = {table for table, _ in leaves(tree)}
            builds = [*BUILDS, *[each.target for each in made if each.target in versioned - takes for _ in range(2)]]
            for _ in range(chance.choice([0, 1, 1, 1, 2])):
                tree = joined(tree, builds)
            if chance.random() < 0.15 and not isinstance(tree, str):
                tree = mapped(tree)
            policy = chance.choice(["quarantine", "publish", "quarantine" if calm else "block"])
            made.append(Statement(f"t{number}", tree, time, policy, chance.choice([0, 0, 4]), timed=has_time))
            if takes <= versioned and not made[-1].united:
                versioned.add(made[-1].target)
        timed[made[-1].target] = made[-1].timed
    return Script(tuple(made), chance.sample(range(len(made)), len(made)))
