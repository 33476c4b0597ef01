"""SELECT … FROM probe JOIN build FOR SYSTEM_TIME AS OF …: the INSERT of a temporal join, or of one table's rows."""

from __future__ import annotations

from tidegate.pipelines.connectors.table import severest_first
from tidegate.pipelines.sql.inserts.joins import JoinCompiler
from tidegate.pipelines.sql.inserts.statement import Declared, InsertStatement, Output
from tidegate.pipelines.sql.model import Condition, Insert, Join
from tidegate.pipelines.sql.scope import InsertScope, Relation, value_of
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.syntax.statements import SelectItem


class SelectCompiler:
    """Compiles one INSERT that hands on each row of its probe by itself."""

    def __init__(self, insert: InsertStatement) -> None:
        self.insert, self.source, self.statement = insert, insert.source, insert.statement

    def compile(self) -> Insert:
        """The INSERT. Raises SqlError."""
        target, probe = self.insert.target(), self.insert.read(self.statement.probe, "FROM")
        relations, joins = self._joined(probe)
        self._one_time(joins)
        if not joins and not probe.spec.only_grows(probe.table.options):
            raise self.insert.error(
                self.statement.probe.table.span,
                f"{probe.table.name} ({probe.spec.name}) has updates, and this INSERT joins nothing in event time",
                "a probe that is read in processing time only grows",
            )
        scope = InsertScope(self.source, relations, functions=self.insert.functions)
        conditions = self._where(scope)
        return Insert(
            id=target.table.options.get("insert.id", target.table.name),
            target=target.table.name,
            probe=probe.table.name,
            probe_alias=relations[0].alias,
            joins=tuple(joins),
            where=" AND ".join(condition.expression for condition in conditions) or None,
            projections=self.insert.projections(target.table, self._selected(scope)),
            sql=self.statement.written,
            location=self.source.location(self.statement.span.start),
            conditions=tuple(conditions),
            constraints=severest_first(target.table.constraints),
            proof=target.table.options.get("gate.proof") == "columns",
        )

    # FROM and JOIN

    def _joined(self, probe: Declared) -> tuple[list[Relation], list[Join]]:
        relations = [self.insert.relation(self.statement.probe, probe, [])]
        joins: list[Join] = []
        for position, join in enumerate(self.statement.joins):
            build = self.insert.read(join.build, "JOIN")
            relation = self.insert.relation(join.build, build, relations)
            later = [further.build.name.text for further in self.statement.joins[position + 1 :]]
            compiler = JoinCompiler(
                self.source, join, relations, relation, probe.spec, build.spec, later, self.insert.functions
            )
            joins.append(compiler.compile())
            relations = [*relations, relation]
        return relations, joins

    def _one_time(self, joins: list[Join]) -> None:
        for join, statement in zip(joins, self.statement.joins, strict=True):
            if join.time != joins[0].time:
                raise self.insert.error(
                    statement.time.span,
                    f"one INSERT cannot mix processing time and event time ({joins[0].build}: {joins[0].time}, "
                    f"{join.build}: {join.time})",
                    "join all builds AS OF the same time attribute, or write two INSERTs",
                )

    # WHERE

    def _where(self, scope: InsertScope) -> list[Condition]:
        if self.statement.where is None:
            return []
        terms = Translator(self.source, scope).conjuncts(self.statement.where)
        return [Condition(value.sql, value.aliases) for _, value in terms]

    # SELECT

    def _selected(self, scope: InsertScope) -> list[Output]:
        return [output for item in self.statement.items for output in self._outputs(item, scope)]

    def _outputs(self, item: SelectItem, scope: InsertScope) -> list[Output]:
        if item.expression is not None:
            value = Translator(self.source, scope).value(item.expression)
            written = item.alias.text if item.alias else item.expression.written
            return [Output(value, item.expression.span, written)]
        relations = [scope.relation(item.qualifier)] if item.qualifier else scope.relations
        return [
            Output(value_of(column, relation.alias), item.span, column.name)
            for relation in relations
            for column in relation.table.columns
        ]
