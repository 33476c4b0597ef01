"""Queries: names are bound by substitution. Each FROM and JOIN maps the names of its columns to values over base
tables, whether it is a table, a view, a query of WITH or one in brackets. What comes out is a tree of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.chains import Chains
from tidegate.pipelines.sql.inserts.joins import JoinCompiler
from tidegate.pipelines.sql.inserts.unions import united
from tidegate.pipelines.sql.inserts.unnest import unnested
from tidegate.pipelines.sql.model import Condition
from tidegate.pipelines.sql.roles import Use
from tidegate.pipelines.sql.scope import CALLED_NOW, InsertScope, Relation, check_table_name, unused
from tidegate.pipelines.sql.tables.source_columns import is_call
from tidegate.pipelines.sql.tables.table import PROCTIMES
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.tree import Column, Declared, Filter, Node, Project, Scan, TemporalJoin, Union
from tidegate.pipelines.syntax.errors import suggest
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Name, Query, SelectItem, TableUse, View
from tidegate.pipelines.syntax.statements import TemporalJoin as JoinStatement
from tidegate.pipelines.syntax.types import folded

WINDOWS_ALONE = "write INSERT INTO a table of its own SELECT … FROM TABLE(…) GROUP BY window_start, window_end"


class Named(NamedTuple):
    """A view, and the queries of WITH that its query may name."""

    view: View
    around: Mapping[str, Named]


class Binder:
    """Binds the query of one INSERT, or of one view. `uses`: the tables that it reads; `views`: the script's views that
    it reads, those that others read first. `waits`: a target that it reads must have its INSERT compiled, or NotWritten
    is raised. Every method raises SqlError."""

    def __init__(
        self,
        source: Source,
        declared: Mapping[str, Declared],
        known: Mapping[str, Named],
        functions: UserFunctions,
        chains: Chains,
        *,
        waits: bool = True,
    ) -> None:
        self.source, self.declared, self.known, self.functions = source, declared, known, functions
        self.chains, self._waits = chains, waits
        self.uses: list[Use] = []
        self.views: dict[str, View] = {}
        self._taken: set[str] = set()
        self._read: set[int] = set()
        self._open: list[tuple[str, Span]] = []

    # Tables

    def table(self, name: Name) -> Declared:
        """The table called `name`."""
        found = self.declared.get(name.text)
        if found is None:
            if name.text in [view for view, _ in self._open]:
                raise self.source.error(
                    name.span, f"{name.text} reads itself", "name the table that its rows come from"
                )
            known = [*self.declared, *self.known]
            hint = suggest(name.text, known, "the script's tables") or "declare it with CREATE TABLE"
            raise self.source.error(name.span, f"unknown table `{name.text}`", hint)
        return found

    def read(self, use: TableUse, clause: str) -> Declared:
        """A table that can be read."""
        found = self.table(use.table)
        role, own = ("probe" if clause == "FROM" else "build"), use.table.span
        at, of = (self._open[0][1], own) if self._open else (own, None)
        target = self.chains.read(found, own, of and at, waits=self._waits)
        if target is None and not found.spec.source:
            what = f"{use.table.text} cannot stand in {clause}: {found.spec.name} can only be written"
            raise self.source.error(use.table.span, what)
        self.uses.append(Use(Name(use.table.text, at), role, of))
        return target or found

    def named_once(self, use: TableUse, relations: Sequence[Relation]) -> None:
        """No two tables of a query have one name."""
        name = use.name
        if not name.text:
            return
        check_table_name(self.source, name)
        if folded(name.text) in [folded(relation.alias) for relation in relations]:
            other = use.table.text or name.text
            hint = f"give it another name: {other} … AS {other[:1]}{len(relations) + 1}"
            raise self.source.error(name.span, f"two tables are called `{name.text}` in this INSERT", hint)

    # Views

    def view(self, view: View, around: Mapping[str, Named], alias: str | None, at: Span) -> Node:
        """A view whose probe is called `alias` in SQL, for what reads it `at` a place."""
        check_table_name(self.source, view.name)
        self._open.append((view.name.text, at))
        node = self._renamed(self._nested(view.query, around, alias), view.columns, view.name)
        self._open.pop()
        return node

    def _nested(self, query: Query, around: Mapping[str, Named], alias: str | None) -> Node:
        if query.window is not None:
            what = "windows cannot be read in the statement that makes them"
            raise self.source.error(query.window.span, what, WINDOWS_ALONE)
        return self.query(query, around, alias, top=False)

    def _renamed(self, node: Node, names: tuple[Name, ...] | None, of: Name) -> Node:
        """The node with other names for its columns; no two have one name."""
        if names is not None:
            if len(names) != len(node.columns):
                given = ", ".join(column.name for column in node.columns)
                what = f"`{of.text}` names {len(names)} columns, its query gives {len(node.columns)} ({given})"
                raise self.source.error(names[0].span.to(names[-1].span), what, "name each of them once")
            made = [
                replace(column, name=name.text, span=name.span)
                for column, name in zip(node.columns, names, strict=True)
            ]
            node = Project(node, tuple(made))
        seen: set[str] = set()
        for column in node.columns:
            if column.name in seen:
                what = f"two columns are called `{column.name}`"
                hint = f"give one another name: … AS {unused(column.name, seen)}, with the columns written out"
                raise self.source.error(column.span, what, hint)
            seen.add(column.name)
        return node

    # Queries

    def query(
        self, query: Query, around: Mapping[str, Named], alias: str | None = None, *, top: bool = True
    ) -> Project:
        """The tree of a query whose probe is called `alias` in SQL. `top`: that of the INSERT itself, whose names are
        those of SQL."""
        around = self.with_views(query, around)
        if query.more:
            return self._union(query, around, alias)
        if top:
            uses = (query.probe, *(each.use for each in query.unnests), *(join.build for join in query.joins))
            self._taken.update(folded(use.name.text) for use in uses)
        node, probe = self.probe(query.probe, around, alias, top=top)
        relations = [probe]
        for unnest in query.unnests:
            self.named_once(unnest.use, relations)
            node, relations = unnested(
                self.source, query, node, InsertScope(self.source, relations, self.functions), unnest
            )
        for place, join in enumerate(query.joins):
            later = [further.build.name.text for further in query.joins[place + 1 :]]
            node, build = self._joined(node, join, relations, later, around, top)
            relations.append(build)
        scope = InsertScope(self.source, relations, self.functions)
        if query.where is not None:
            terms = Translator(self.source, scope).conjuncts(query.where)
            node = Filter(node, tuple(Condition(value.sql, value.aliases) for _, value in terms))
        made = [column for item in query.items for column in self._columns(item, scope)]
        self.all_read(query)
        numbered = (replace(each, name=each.name or f"EXPR${place}") for place, each in enumerate(made))
        return Project(node, tuple(numbered))

    def _union(self, query: Query, around: Mapping[str, Named], alias: str | None) -> Project:
        """The tree of the queries of a UNION ALL."""
        base = self._base(alias or "union", alias is not None)
        queries = (replace(query, views=(), more=()), *query.more)
        branches = [self._nested(each, around, None) for each in queries]
        branches[0] = self._renamed(branches[0], None, Name("", query.span))
        self.all_read(query)
        union = united(self.source, queries, branches, base)
        taken = [each.table for each in union.taken]
        for build in [node.build for branch in branches for node in branch.nodes if isinstance(node, TemporalJoin)]:
            self.chains.require_build(build.declared, taken, build.span)
        return Project(union, union.columns)

    def with_views(self, query: Query, around: Mapping[str, Named]) -> Mapping[str, Named]:
        """What a query may name: `around`, and the queries of its WITH."""
        here: dict[str, Named] = {}
        for view in query.views:
            if view.name.text in here:
                hint = "give one of them another name"
                raise self.source.error(view.name.span, f"WITH names `{view.name.text}` twice", hint)
            here[view.name.text] = Named(view, {**around, **here})
        return {**around, **here}

    def all_read(self, query: Query) -> None:
        """Every query of a WITH is read: nothing else would say whether it is right."""
        for view in query.views:
            if id(view) not in self._read:
                raise self.source.error(view.name.span, f"nothing reads `{view.name.text}`", "leave it out of WITH")

    def _columns(self, item: SelectItem, scope: InsertScope) -> Iterator[Column]:
        if item.expression is not None:
            value, tree = Translator(self.source, scope).value(item.expression), item.expression.tree
            if is_call(item.expression, *PROCTIMES):
                value = replace(value, column=CALLED_NOW)
            name = item.alias.text if item.alias else item.expression.written
            called = item.alias.text if item.alias else tree.name if isinstance(tree, exp.Column | exp.Dot) else ""
            yield Column(called, value, item.expression.span, name)
            return
        for relation in [scope.relation(item.qualifier)] if item.qualifier else scope.relations:
            for name, value in relation.columns.items():
                yield Column(name, value, item.span, name, relation.places.get(name))

    # FROM and JOIN

    def find(self, use: TableUse, around: Mapping[str, Named]) -> Named | None:
        """The view, or the query of WITH, that a FROM or JOIN names."""
        found = None if use.query else around.get(use.table.text) or self.known.get(use.table.text)
        if found is not None and use.options:
            what, hint = "a hint changes the options of a table, not those of a view", "write it where the view is made"
            raise self.source.error(use.options[0].key.span, what, hint)
        return found

    def _named(self, named: Named, use: TableUse, alias: str) -> Node:
        """A view at the place that reads it."""
        view = named.view
        self._read.add(id(view))
        node = self.view(view, named.around, alias, use.table.span)
        if self.known.get(view.name.text) is named:
            self.views.setdefault(view.name.text, view)
        return node

    def probe(
        self, use: TableUse, around: Mapping[str, Named], alias: str | None = None, *, top: bool = True
    ) -> tuple[Node, Relation]:
        """What FROM names: its rows, whose table is called `alias` in SQL, and their names."""
        self.named_once(use, [])
        named = self.find(use, around)
        base = alias or use.name.text or None
        if base and not (top or alias) and (named or use.query):
            base = self._base(base, False)
        if use.query is not None:
            node = self._nested(use.query, around, base)
        elif named is not None:
            node = self._named(named, use, base or "")
        else:
            node = Scan(self.read(use, "FROM"), self._base(base or "", top or alias is not None), use.table.span)
        defined = named.view.name.span if named else use.query.span if use.query else None
        return node, self._relation(self._renamed(node, use.columns, use.name), use, defined)

    def _base(self, name: str, reserved: bool) -> str:
        found = name if reserved else unused(name, self._taken)
        self._taken.add(found.casefold())
        return found

    def _relation(self, node: Node, use: TableUse, defined: Span | None) -> Relation:
        return Relation(
            use.name.text,
            {column.name: column.value for column in node.columns},
            node.scan.declared.table,
            use.table.text or use.name.text,
            node.scan.alias,
            defined,
            {column.name: column.span for column in node.columns} if defined else {},
        )

    def _joined(
        self,
        node: Node,
        join: JoinStatement,
        relations: Sequence[Relation],
        later: Sequence[str],
        around: Mapping[str, Named],
        top: bool,
    ) -> tuple[Node, Relation]:
        use = join.build
        named = self.find(use, around)
        base = self._base(use.name.text, top)
        if named is None:
            build: Node = Scan(self.read(use, "JOIN"), base, use.table.span)
        else:
            build = self._build(named, use, base)
        self.named_once(use, relations)
        self.chains.require_build(build.scan.declared, [each.table for each in node.scan.taken], use.table.span)
        right = self._relation(self._renamed(build, use.columns, use.name), use, named and named.view.name.span)
        scope = InsertScope(self.source, [*relations, right], self.functions, later)
        compiler = JoinCompiler(self.source, join, scope, right, node, build)
        made = compiler.compile()
        right = compiler.after()
        places = right.places
        gives = (Column(name, value, places.get(name, use.table.span), name) for name, value in right.columns.items())
        return TemporalJoin(node, made, build.scan, tuple(gives)), right

    def _build(self, named: Named, use: TableUse, base: str) -> Node:
        """A view that is joined: of one table, whose columns it may name anew and whose rows it may filter."""
        uses = len(self.uses)
        node = self._named(named, use, base)
        if isinstance(node.scan, Union):
            what = f"{use.table.text} is {node.scan.word}, so it cannot be a build side"
            hint = "join each of its tables"
            raise self.source.error(use.table.span, what, hint, named.view.name.span)
        if node.joins:
            what = f"{use.table.text} joins tables, so it cannot be a build side"
            hint = f"join {node.scan.declared.table.name} itself, and then what the view joins"
            raise self.source.error(use.table.span, what, hint, named.view.name.span)
        self.uses[uses:] = [replace(each, role="build") for each in self.uses[uses:]]
        return node
