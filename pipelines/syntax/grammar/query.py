"""INSERT INTO and CREATE VIEW, and their queries as written: [WITH …] SELECT … FROM probe JOIN build FOR SYSTEM_TIME AS
OF …, or FROM TABLE(TUMBLE(…)); a probe may be a query in brackets."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import Token, TokenType

from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.grammar.base import NAMES
from tidegate.pipelines.syntax.grammar.create import LAKE_LAYS_OUT, CreateGrammar
from tidegate.pipelines.syntax.source import Span, span_of
from tidegate.pipelines.syntax.statements import (
    Argument,
    CreateFunction,
    CreateTable,
    InsertInto,
    Name,
    Option,
    Query,
    Scalar,
    SelectItem,
    TableUse,
    TemporalJoin,
    View,
    WindowFunctionCall,
)

WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE")
EXAMPLE = "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES))"
SESSIONS = (
    "sessions are a function of Python: tidegate.pipelines.process.windows.session, see docs/process-functions.md"
)
GROUPINGS = ("GROUPING SETS", "ROLLUP", "CUBE")


class WindowGrammar(CreateGrammar):
    """What an INSERT over windows has that others have not."""

    def window_function(self) -> WindowFunctionCall | None:
        """The table function that FROM begins with; None where it names a table."""
        first = self._curr
        wrapped = self.word("TABLE") and self._next.token_type == TokenType.L_PAREN
        if wrapped:
            self._advance(2)
        elif first.token_type not in NAMES or self._next.token_type != TokenType.L_PAREN:
            return None
        function = self.name("a table function (TUMBLE, HOP or CUMULATE)")
        self._known(function)
        arguments = tuple(self.listed(self._table_argument))
        if wrapped:
            self.need_sign(TokenType.R_PAREN, ")", f"for example {EXAMPLE}")
        return WindowFunctionCall(function, arguments, self.since(first))

    def grouping(self) -> tuple[tuple[Scalar, ...], Span | None, Scalar | None]:
        """[GROUP BY expressions] [HAVING condition]; the place of GROUP BY."""
        groups: list[Scalar] = []
        place = None
        first = self._curr
        if self.take("GROUP", "BY"):
            groups = self.several(self._group)
            place = self.since(first)
        return tuple(groups), place, self.scalar() if self.take("HAVING") else None

    def _group(self) -> Scalar:
        for words in GROUPINGS:
            self.refuse_next(words.split()[0], what=words, hint="write one INSERT for each grouping")
        return self.scalar()

    def _known(self, function: Name) -> None:
        written = function.text.upper()
        if written in WINDOW_FUNCTIONS:
            return
        if written == "SESSION":
            self.refuse(function.span, "SESSION is no table function here", SESSIONS)
        hint = did_you_mean(written, WINDOW_FUNCTIONS) or "there are TUMBLE, HOP and CUMULATE"
        self.refuse(function.span, f"there is no table function {function.text}", hint)

    def _table_argument(self) -> Argument:
        first, name = self._curr, None
        if self._next.token_type == TokenType.FARROW and first.text.isidentifier():
            name = Name(first.text, span_of(first))
            self._advance(2)
        if self.take("TABLE"):
            table = self.table_name()
            self.refuse_next("PARTITION", what="PARTITION BY", hint="write the columns into GROUP BY")
            return Argument(self.since(first), name, table=table)
        if self.word("DESCRIPTOR") and self._next.token_type == TokenType.L_PAREN:
            self._advance()
            paths = self.listed(lambda: self.path("a column"))
            if len(paths) > 1:
                self.refuse(paths[1][0].span, "DESCRIPTOR names one column", "name the table's time attribute alone")
            return Argument(self.since(first), name, descriptor=tuple(paths[0]))
        scalar = self.scalar()
        return Argument(self.since(first), name, scalar=scalar)


ROWS_STAY = "a pipeline gives every probe row as a row of its own: aggregate what it publishes"
BY_WINDOWS = f"a stream is grouped by windows: {EXAMPLE} GROUP BY window_start, window_end"
TEMPORAL = "write JOIN build FOR SYSTEM_TIME AS OF probe.time ON …"
INSERT_EACH = "write each SELECT as an INSERT INTO a table of its own, and put these together where they are read"

REFUSED_CLAUSES = {
    TokenType.GROUP_BY: ("GROUP BY", BY_WINDOWS),
    TokenType.HAVING: ("HAVING", BY_WINDOWS),
    TokenType.WINDOW: ("WINDOW", ROWS_STAY),
    TokenType.ORDER_BY: ("ORDER BY", "a stream has no end to sort at: sort what is published"),
    TokenType.LIMIT: ("LIMIT", "a stream goes on: limit the source, or what is read from the target"),
    TokenType.OFFSET: ("OFFSET", "a stream goes on: limit what is read from the target"),
    TokenType.FETCH: ("FETCH", "a stream goes on: limit what is read from the target"),
    TokenType.UNION: ("UNION", "write UNION ALL: it gives every row of both, and keeps none to compare it with"),
    TokenType.INTERSECT: ("INTERSECT", INSERT_EACH),
    TokenType.EXCEPT: ("EXCEPT", INSERT_EACH),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", "filter with WHERE"),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "a pipeline looks at one probe row at a time"),
}
CLAUSES_ELSEWHERE = ("ANTI", "ASOF", "PIVOT", "QUALIFY", "SAMPLE", "SEMI", "UNPIVOT")
"""Words behind a table that begin a clause elsewhere: as a name without AS each would change what is meant."""
REFUSED_JOINS = ("RIGHT", "FULL", "CROSS", "NATURAL")
JOINS = "use INNER JOIN or LEFT JOIN"
ELEMENTS = "a row of the probe stays one row: take elements by their places, x[1], or make rows in a process function"
QUERIES = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
"""With what a query begins."""


class QueryGrammar(WindowGrammar):
    """INSERT INTO target [(columns)] query, and CREATE [TEMPORARY] VIEW name [(columns)] AS query, where a query is
    [WITH name AS (query), …] select [UNION ALL select …], and select is SELECT items FROM probe joins [WHERE
    condition], a query in brackets, or SELECT items FROM a window's table function [WHERE condition] GROUP BY
    expressions [HAVING condition]."""

    def insert(self, first: Token) -> InsertInto:
        """Read what follows INSERT."""
        begin = self._index - 1
        self.refuse_next("OVERWRITE", what="INSERT OVERWRITE", hint="INSERT INTO adds rows, each exactly once")
        self.need("INTO")
        self.take("TABLE")
        target = self.table_name()
        options = self._hint()
        self.refuse_next("PARTITION", hint=LAKE_LAYS_OUT)
        columns = self._names()
        hint = "rows come from a source table: INSERT INTO … SELECT … FROM"
        self.refuse_next("VALUES", what="INSERT … VALUES", hint=hint)
        query = self.query()
        span = self.since(first)
        written = self.source.written(self._tokens[begin : self._index])
        return InsertInto(target, columns, query, span, written, options)

    def create(self, first: Token) -> CreateTable | CreateFunction | View:
        """Read what follows CREATE."""
        is_view = self.word("VIEW", ahead=1 if self.word("TEMPORARY") else 0)
        return self._view(first) if is_view else super().create(first)

    def _view(self, first: Token) -> View:
        begin = self._index - 1
        self.take("TEMPORARY")
        self.need("VIEW")
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        name = self._name_of_one_part("view", "its query")
        columns = self._names()
        self.comment()
        self.need("AS", hint="write CREATE VIEW name AS SELECT …")
        query = self.query()
        written = self.source.written(self._tokens[begin : self._index])
        return View(name, columns, query, self.since(first), written, if_not_exists)

    def _names(self) -> tuple[Name, ...] | None:
        """[(names of columns)]."""
        named = self._curr.token_type == TokenType.L_PAREN and self._next.token_type not in QUERIES
        return tuple(self.listed(self._column_name)) if named else None

    def _column_name(self) -> Name:
        if self.watermark_is_next():
            what = "a view has no watermark: WATERMARK FOR belongs in the CREATE TABLE that the rows come from"
            self.refuse(self.here(), what, "declare it there: it goes through the view")
        name = self.name("a column's name")
        if self._curr.token_type == TokenType.STRING:
            self.text("a comment")
        else:
            self.comment()
        return name

    def query(self) -> Query:
        """Read [WITH …] SELECT … [UNION ALL …], to the end of it."""
        views: tuple[View, ...] = ()
        if self.take("WITH"):
            hint = "a query that reads itself has no end: leave it out"
            self.refuse_next("RECURSIVE", what="WITH RECURSIVE", hint=hint)
            views = tuple(self.several(self._named))
        first, more = self._select(), list[Query]()
        while self._curr.token_type == TokenType.UNION and self._next.token_type == TokenType.ALL:
            self._advance(2)
            more.append(self._select())
        self._end_of_select()
        return replace(first, views=views, more=tuple(more))

    def _select(self) -> Query:
        select = self._curr
        if select.token_type == TokenType.L_PAREN:
            query = self._in_brackets_query()
            span = self.since(select)
            use = TableUse(Name("", span), None, query=query)
            return Query((), (SelectItem(span),), use, (), None, query.span)
        self.need("SELECT")
        items = self._items()
        span = self.since(select)
        self.need("FROM")
        probe, window = self._probe()
        joins = []
        while (join := self._join()) is not None:
            joins.append(join)
        where = self.scalar() if self.take("WHERE") else None
        groups, grouped, having = self.grouping() if window is not None else ((), None, None)
        return Query((), items, probe, tuple(joins), where, span, window, groups, grouped, having)

    def _named(self) -> View:
        first = self._curr
        name, columns = self._name_of_one_part("query", "FROM"), self._names()
        self.need("AS")
        return View(name, columns, self._in_brackets_query(), self.since(first))

    def _in_brackets_query(self) -> Query:
        self.need_sign(TokenType.L_PAREN, "(")
        query = self.query()
        self.need_sign(TokenType.R_PAREN, ")")
        return query

    def _hint(self) -> tuple[Option, ...]:
        """The options of a hint behind the last token."""
        found = self.source.hints.pop(self._prev.end + 1, None)
        if found is None:
            return ()
        reader = type(self)(dialect=self.dialect)
        return reader.read(self.source, found, lambda: reader.hint())

    def hint(self) -> tuple[Option, ...]:
        """Read a hint: OPTIONS('key' = 'value', …)."""
        self.need("OPTIONS")
        options = tuple(self.listed(self._option))
        if self._curr:
            self.expected("the end of the hint")
        return options

    def _items(self) -> tuple[SelectItem, ...]:
        self.refuse_next("DISTINCT", what="SELECT DISTINCT", hint=ROWS_STAY)
        self.take("ALL")
        return tuple(self.several(self._item))

    def _item(self) -> SelectItem:
        first = self._curr
        if self._match(TokenType.STAR):
            return SelectItem(self.since(first))
        if first.token_type in NAMES and self._next.token_type == TokenType.DOT and self._star_follows():
            qualifier = self.name("a table's name")
            self._advance(2)
            return SelectItem(self.since(first), qualifier=qualifier)
        expression = self.scalar()
        alias = None
        if self.take("AS") or self._curr.token_type in NAMES:
            alias = self.name("a name")
        self._no_over()
        return SelectItem(self.since(first), expression, alias)

    def _star_follows(self) -> bool:
        after = self._index + 2
        return after < len(self._tokens) and self._tokens[after].token_type == TokenType.STAR

    def _probe(self) -> tuple[TableUse, WindowFunctionCall | None]:
        window = self.window_function()
        if window is None:
            use = self._table("FROM")
        else:
            tables = [argument.table for argument in window.arguments if argument.table is not None]
            if len(tables) != 1:
                self.refuse(window.span, f"{window.function.text} takes one TABLE", f"for example {EXAMPLE}")
            use = TableUse(tables[0], None)
        if self._curr.token_type == TokenType.FOR:
            self.refuse(self.here(), "FOR SYSTEM_TIME AS OF belongs behind a joined table, not behind FROM", TEMPORAL)
        alias = self._alias()
        if window is not None and alias is not None and self._curr.token_type == TokenType.L_PAREN:
            hint = "leave the list out, and name them anew in SELECT: … AS name"
            self.refuse(self.here(), "the columns of windows keep their names in FROM", hint)
        columns = self._names() if alias is not None else None
        if self._curr.token_type == TokenType.COMMA:
            if self._next.text.upper() == "UNNEST":
                self.refuse(self.here(), "UNNEST in FROM is not supported", ELEMENTS)
            self.refuse(self.here(), "a list of tables in FROM is not supported", TEMPORAL)
        return replace(use, alias=alias, columns=columns), window

    def _table(self, clause: str) -> TableUse:
        kind, hint = self._curr.token_type, "name a table that the script declares"
        functions = f"table functions in {clause} are not supported"
        if kind == TokenType.L_PAREN:
            first = self._curr
            if clause == "FROM" and self._next.token_type in QUERIES:
                query = self._in_brackets_query()
                return TableUse(Name("", self.since(first)), None, query=query)
            hint = hint if clause == "FROM" else "CREATE VIEW name AS SELECT …, and join the view by its name"
            self.refuse(self.here(), f"subqueries in {clause} are not supported", hint)
        if kind == TokenType.LATERAL or (self.word("TABLE") and self._next.token_type == TokenType.L_PAREN):
            self.refuse(self.here(), functions, hint)
        self.refuse_next("UNNEST", hint=ELEMENTS, behind=TokenType.L_PAREN)
        name = self.table_name()
        if self._curr.token_type == TokenType.L_PAREN:
            self.refuse(name.span, functions, hint)
        return TableUse(name, None, options=self._hint())

    def _alias(self) -> Name | None:
        if self._curr.token_type == TokenType.VAR and self._curr.text.upper() in CLAUSES_ELSEWHERE:
            word = self._curr.text.upper()
            self.refuse(self.here(), f"{word} is not supported", f"a table of that name needs AS: AS {word}")
        if self.take("AS") or self._curr.token_type in NAMES:
            return self.name("a name for the table")
        return None

    def _join(self) -> TemporalJoin | None:
        first = self._curr
        self.refuse_next("CROSS", "JOIN", "UNNEST", what="CROSS JOIN UNNEST", hint=ELEMENTS)
        for word in REFUSED_JOINS:
            self.refuse_next(word, what=f"{word} JOIN", hint=JOINS)
        kind = "INNER"
        if self.take("LEFT"):
            kind = "LEFT"
            self.take("OUTER")
            for word in ("SEMI", "ANTI"):
                self.refuse_next(word, what=f"LEFT {word} JOIN", hint=JOINS)
            self.need("JOIN")
        elif self.take("INNER"):
            self.need("JOIN")
        elif not self.take("JOIN"):
            return None
        joined = self.since(first)
        build = self._table("JOIN")
        early = self._alias()
        if self._curr.token_type != TokenType.FOR:
            what = "a plain join is not supported: it would keep both streams for ever"
            self.refuse(joined.to(build.table.span), what, TEMPORAL)
        if early is not None:
            what = "FOR SYSTEM_TIME AS OF belongs before the table's other name"
            self.refuse(self.here(), what, f"write {build.table.text} FOR SYSTEM_TIME AS OF … AS {early.text}")
        self.need("FOR", "SYSTEM_TIME", "AS", "OF", hint="for example FOR SYSTEM_TIME AS OF orders.proctime")
        time = self.scalar(self._parse_bitwise, "the probe's time attribute")
        alias = self._alias()
        columns = self._names() if alias is not None else None
        self.refuse_next("USING", hint="write ON left.key = right.key")
        self.need("ON", hint="a temporal join needs the build's whole primary key: ON probe.k = build.k")
        condition = self.scalar()
        build = replace(build, alias=alias, columns=columns)
        return TemporalJoin(kind, build, time, condition, self.since(first))

    def _end_of_select(self) -> None:
        clause = REFUSED_CLAUSES.get(self._curr.token_type)
        if clause is not None:
            self.refuse(self.here(), f"{clause[0]} is not supported", clause[1])
        self.refuse_next("QUALIFY", hint=ROWS_STAY)
