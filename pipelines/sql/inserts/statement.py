"""One INSERT of a script: the tables and columns that its names mean, and the expressions for the columns of its
target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.pipelines.connectors.table import Column, Table, severest_first
from tidegate.pipelines.sql.coercion import assignable, castable
from tidegate.pipelines.sql.inserts.queries import Binder
from tidegate.pipelines.sql.inserts.unnest import lean
from tidegate.pipelines.sql.model import Insert, Projection
from tidegate.pipelines.sql.scope import CALLED_NOW, type_of, unknown_column
from tidegate.pipelines.sql.tree import KEPT, Condition, Declared, Node, Union
from tidegate.pipelines.sql.tree import Column as OutputColumn
from tidegate.pipelines.sql.values import fits
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import InsertInto
from tidegate.pipelines.syntax.types import Kind, quoted

NOT_FROM_THE_ENVIRONMENT = ("gate.on-unmatched", "gate.proof", "path")
"""Options of a target that are read where no environment is."""


@dataclass(frozen=True)
class InsertStatement:
    """One INSERT, and what its names mean. Every method raises SqlError."""

    source: Source
    statement: InsertInto
    binder: Binder

    def compile(self) -> Insert:
        """An INSERT of rows of its probe, one by one. Raises SqlError."""
        target, query = self.target(), self.statement.query
        tree = self.binder.query(query, {})
        probe = tree.scan.declared
        if not tree.joins and not probe.only_grows:
            what = f"{probe.table.name} ({probe.spec.name}) has updates, and this INSERT joins nothing in event time"
            raise self.source.error(query.probe.table.span, what, "a probe that is read in processing time only grows")
        return self.compiled(target.table, tree)

    def target(self) -> Declared:
        name = self.statement.target
        if (view := self.binder.known.get(name.text)) is not None:
            what = f"{name.text} is a view, and rows are written into tables"
            raise self.source.error(name.span, what, "declare a table for them with CREATE TABLE", view.view.name.span)
        target = self.binder.table(name)
        if not target.spec.sink:
            what = f"{target.table.name} cannot be a target: {target.spec.name} can only be read"
            raise self.source.error(self.statement.target.span, what)
        for column in target.table.columns:
            if column.metadata is not None:
                what = f"{target.table.name} cannot be a target: its column `{column.name}` is METADATA"
                raise self.source.error(self.statement.target.span, what, "leave METADATA out")
        for option in target.statement.options:
            if option.key.text in NOT_FROM_THE_ENVIRONMENT and needs_variables(option.value.text):
                what = f"'{option.key.text}' of a target cannot come from the environment"
                raise self.source.error(option.value.span, what, "write the value")
        return target

    def compiled(self, target: Table, tree: Node) -> Insert:
        """The INSERT of the rows of `tree` into `target`."""
        scan, conditions = tree.scan, tree.conditions
        united, branches = (scan.declared.table, scan.taken) if isinstance(scan, Union) else (None, ())
        if any(branch.filters for branch in branches):
            conditions = (Condition(f"{quoted(scan.alias)}.{quoted(KEPT)}", frozenset({scan.alias})), *conditions)
        projections = self._projections(target, tree.columns)
        if united is not None and len(branches) == 1:  # of UNNEST
            texts = [item.expression for item in (*projections, *conditions)]
            for join in tree.joins:
                texts += [join.predicate or "", *(key.probe for key in join.keys)]
            united, branch = lean(united, branches[0], scan.alias, texts)
            branches = (branch,)
        return Insert(
            id=target.options.get("insert.id", target.name),
            target=target.name,
            probe=tree.scan.declared.table.name,
            probe_alias=tree.scan.alias,
            joins=tree.joins,
            where=" AND ".join(condition.expression for condition in conditions) or None,
            projections=projections,
            sql=self.statement.written,
            location=self.source.location(self.statement.span.start),
            conditions=conditions,
            constraints=severest_first(target.constraints),
            proof=target.options.get("gate.proof") == "columns",
            views=tuple(view.written for view in self.binder.views.values()),
            tree=tree,
            united=united,
            branches=branches,
            entries=scan.entries,
        )

    def _projections(self, target: Table, outputs: Sequence[OutputColumn]) -> tuple[Projection, ...]:
        """The expressions for the target's columns. Raises SqlError for too few, too many, or a type that does not
        fit."""
        columns = self._target_columns(target)
        if len(outputs) != len(columns):
            wanted, given = [column.name for column in columns], [output.written for output in outputs]
            what = (
                f"{target.name} takes {len(columns)} column{'' if len(columns) == 1 else 's'} ({', '.join(wanted)}), "
                f"the SELECT gives {len(outputs)} ({', '.join(given)})"
            )
            raise self.source.error(
                self.statement.query.span, what, f"or name the columns: INSERT INTO {target.name} (…)"
            )
        chosen = {column.name: output for column, output in zip(columns, outputs, strict=True)}
        return tuple(self._projection(target, column, chosen.get(column.name)) for column in target.physical_columns)

    def _target_columns(self, target: Table) -> list[Column]:
        physical = {column.name: column for column in target.physical_columns}
        if self.statement.columns is None:
            return list(physical.values())
        chosen: list[Column] = []
        for name in self.statement.columns:
            if name.text not in physical:
                raise unknown_column(self.source, name, target.name, physical)
            if physical[name.text] in chosen:
                raise self.source.error(name.span, f"column `{name.text}` is named twice")
            chosen.append(physical[name.text])
        return chosen

    def _projection(self, target: Table, column: Column, output: OutputColumn | None) -> Projection:
        if output is None:
            if not column.nullable:
                what = f"column `{column.name}` of {target.name} is NOT NULL and gets no value"
                raise self.source.error(self.statement.target.span, what, "name it among the INSERT's columns")
            return Projection(column.name, f"CAST(NULL AS {column.spark_type})", column.spark_type)
        value, wanted = output.value, type_of(column)
        if value.type.kind is Kind.NULL and not column.nullable:
            what = f"column `{column.name}` of {target.name} is NOT NULL and gets NULL"
            raise self.source.error(output.span, what, None, output.of)
        if not assignable(value.type, wanted) and not (value.literal and fits(value.constant, wanted)):
            hint = None
            if castable(value.type, wanted):
                hint = f"CAST({self.source.shown(output.span)} AS {parse_type(column.type)}) says that this is meant"
                if self.source.shown(output.span).endswith("*"):
                    hint = f"write the columns out, with CAST({output.written} AS {parse_type(column.type)})"
            what = f"type clash: column `{column.name}` of {target.name} is {column.type}"
            raise self.source.error(output.span, f"{what}, `{output.written}` is {value.type.null()}", hint, output.of)
        plain = value.column not in (None, CALLED_NOW) and value.type.spark == wanted.spark
        sql = value.sql if plain else f"CAST({value.sql} AS {wanted.spark})"
        return Projection(column.name, sql, column.spark_type)
