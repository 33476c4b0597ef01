"""Functions that a script declares itself (CREATE FUNCTION … LANGUAGE PYTHON): imported, their annotations read, called
like the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.pipelines.functions import FunctionProblem, Parameter, UserFunction, read
from tidegate.pipelines.sql.functions import FUNCTIONS
from tidegate.pipelines.sql.functions.function import NUMBER, OCTETS, TEXT, TRUTH, Call, Family, Function
from tidegate.pipelines.sql.functions.refused import TAKEN
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import did_you_mean
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import CreateFunction
from tidegate.pipelines.syntax.types import INTEGERS, NUMERIC, TIMESTAMPS, FlinkType, Kind

ROW = "_split, _offset"
"""Every call gets the place of its row, so that an error can name it."""

_TAKES = {
    Kind.BIGINT: Family("integer or TIMESTAMP (its ms)", frozenset({*INTEGERS, *TIMESTAMPS})),
    Kind.DOUBLE: NUMBER,
    Kind.DECIMAL: Family("integer or DECIMAL", frozenset({*INTEGERS, Kind.DECIMAL})),
    Kind.STRING: TEXT,
    Kind.BOOLEAN: TRUTH,
    Kind.BYTES: OCTETS,
    Kind.DATE: Family("DATE", frozenset({Kind.DATE})),
    Kind.TIMESTAMP: Family("TIMESTAMP or TIMESTAMP_LTZ", frozenset(TIMESTAMPS)),
}
"""The argument types that a parameter of a type accepts. FLIP-66's example passes a TIMESTAMP for a long: it gets ms,
UTC."""


def callable_in_sql(function: UserFunction) -> Function:
    """The record by which calls of `function` are checked and translated."""
    gives = parse_type(function.type)

    def result(call: Call) -> FlinkType:
        # Without a call where a NULL meets a parameter that takes none, so the result may be NULL then.
        pairs = zip(function.parameters, call.types, strict=False)
        passed_over = any(found.nullable and not parameter.takes_null for parameter, found in pairs)
        return gives if function.gives_null or passed_over else gives.not_null()

    def spark(call: Call) -> str:
        pairs = zip(function.parameters, call.arguments, strict=False)
        arguments = [_argument(parameter, argument) for parameter, argument in pairs]
        return f"{function.spark_name}({', '.join([ROW, *arguments])})"

    return Function(
        names=(function.name,),
        takes=tuple(_TAKES[parse_type(parameter.type).kind] for parameter in function.parameters),
        gives=result,
        spark=spark,
        least=sum(not parameter.optional for parameter in function.parameters),
        usage=function.signature.partition(" -> ")[0],
    )


def _argument(parameter: Parameter, argument: Value) -> str:
    wanted, have = parse_type(parameter.type), argument.type.kind
    if have in TIMESTAMPS and wanted.kind is Kind.BIGINT:
        return f"unix_millis(CAST({argument.sql} AS TIMESTAMP))"
    if have is Kind.NULL or (have in NUMERIC and argument.type.spark != wanted.spark):
        return f"CAST({argument.sql} AS {wanted.spark})"
    return argument.sql


class UserFunctions:
    """The functions of one script, by name in any case. `later`: names of those that are declared further down."""

    def __init__(self, source: Source, later: Iterable[str] = ()) -> None:
        self._source = source
        self._later = {name.casefold(): name for name in later}
        self._known: dict[str, tuple[UserFunction, Function, int]] = {}

    @property
    def declared(self) -> Mapping[str, UserFunction]:
        """All so far, by name as declared."""
        return {function.name: function for function, _, _ in self._known.values()}

    def declare(self, statement: CreateFunction) -> None:
        """Import the function and remember it. Raises SqlError, at its name or at its reference."""
        name, folded = statement.name, statement.name.text.casefold()
        if not name.text.isidentifier() or name.text.startswith("_"):
            what = f"`{name.text}` is no name for a function"
            raise self._source.error(name.span, what, "use letters, digits and `_`, with a letter in front")
        if name.text.upper() in FUNCTIONS or name.text.upper() in TAKEN:
            what = f"{name.text.upper()} is a function of the language"
            raise self._source.error(name.span, what, "give yours another name")
        if folded in self._known:
            if statement.if_not_exists:
                return
            what = f"function `{name.text}` is declared already, in line {self._known[folded][2]}"
            raise self._source.error(name.span, what, "give it another name; the case of its letters does not matter")
        try:
            function = read(name.text, statement.reference.text)
        except FunctionProblem as problem:
            raise self._source.error(statement.reference.span, problem.what, problem.hint) from problem
        self.add(function, self._source.location(name.span.start).line)

    def add(self, function: UserFunction, line: int = 0) -> None:
        """Remember a function that was declared in `line`."""
        self._known[function.name.casefold()] = (function, callable_in_sql(function), line)

    def find(self, name: str, span: Span) -> Function | None:
        """The function that a call at `span` names; None when the script declares none of that name.

        Raises SqlError for one that is declared further on.
        """
        found = self._known.get(name.casefold())
        if found is not None:
            return found[1]
        if name.casefold() in self._later:
            hint = "put its CREATE FUNCTION in front of this statement"
            raise self._source.error(span, f"function {name} is declared further on", hint)
        return None

    def close_to(self, name: str) -> str | None:
        """A hint for a name that is no function."""
        built_in = [known for known in FUNCTIONS if " " not in known]
        return did_you_mean(name.upper(), [*built_in, *(function.name for function, _, _ in self._known.values())])
