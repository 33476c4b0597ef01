"""COALESCE, IF, NULLIF, …; ARRAY_CONTAINS, MAP_KEYS, and the constructors MAP[…] and ROW(…)."""

from __future__ import annotations

from tidegate.pipelines.sql.coercion import cast_to_one, castable, common_exact, comparable, looked_up_as, narrowed
from tidegate.pipelines.sql.functions.function import ANY, COLLECTION, DICTIONARY, LIST, TRUTH, Call, Function, same
from tidegate.pipelines.syntax.types import BOOLEAN, INT, Field, FlinkType, Kind, array_of, spark_string


def _row_type(call: Call) -> FlinkType:
    return FlinkType(Kind.ROW, fields=tuple(Field(f"EXPR${place}", of) for place, of in enumerate(call.types)))


def _row(call: Call) -> str:
    parts = [f"{spark_string(f'EXPR${place}')}, {sql}" for place, sql in enumerate(call.sqls)]
    return f"named_struct({', '.join(parts)})"


def _map_type(call: Call) -> FlinkType:
    if not call.arguments or len(call.arguments) % 2:
        call.refuse("a MAP has pairs of a key and a value", "MAP['a', 1, 'b', 2]")
    key, value = common_exact(call.arguments[::2]), common_exact(call.arguments[1::2])
    if key is None or value is None:
        hint = "CAST them to one type" if all(cast_to_one(call.types[first::2]) for first in (0, 1)) else None
        call.refuse("type clash: the keys, or the values, of the MAP have different types", hint)
    return FlinkType(Kind.MAP, arguments=(key, value))


def _map(call: Call) -> str:
    key, value = _map_type(call).arguments
    pairs = [argument.to(value if place % 2 else key) for place, argument in enumerate(call.arguments)]
    return f"map({', '.join(pairs)})"


def _contains(call: Call) -> str:
    array, wanted = call.types
    if not comparable(array.element, wanted) or not looked_up_as(call.arguments[1], array.element):
        hint = "CAST the value" if castable(wanted, array.element) else None
        call.refuse(f"type clash: an {array} holds no {wanted}", hint, 1)
    return f"array_contains({call.sqls[0]}, {call.arguments[1].to(array.element)})"


def one_type(call: Call, first: int = 0) -> FlinkType:
    """The type that all arguments from `first` on fit into. Raises SqlError when there is none."""
    found = common_exact(call.arguments[first:])
    if found is None:
        types = " and ".join(dict.fromkeys(map(str, call.types[first:])))
        hint = "CAST them to one type" if cast_to_one(call.types[first:]) else None
        call.refuse(f"type clash: {call.name} has arguments of types {types}", hint)
    return found


def all_as(call: Call, target: FlinkType, first: int = 0) -> str:
    """The arguments from `first` on as Spark SQL of the type `target`."""
    return ", ".join(argument.to(target) for argument in call.arguments[first:])


def _coalesce(call: Call) -> str:
    return f"coalesce({all_as(call, one_type(call))})"


def _extreme(function: str):
    def write(call: Call) -> str:
        target = one_type(call)
        if not comparable(target, target):
            call.refuse(f"type clash: values of type {target} cannot be compared")
        missing = " OR ".join(f"{sql} IS NULL" for sql in call.sqls)
        # Spark passes over NULLs, Flink does not.
        return f"CASE WHEN {missing} THEN NULL ELSE {function}({all_as(call, target)}) END"

    return write


def _nullif(call: Call) -> str:
    left, right = call.arguments
    if not comparable(narrowed(left), narrowed(right)):
        hint = "CAST one of them" if cast_to_one((left.type, right.type), compared=True) else None
        call.refuse(f"type clash: {left.type} and {right.type} cannot be compared", hint)
    return f"nullif({left.sql}, {right.sql})"


def _if(call: Call) -> str:
    return f"if({call.arguments[0].to(BOOLEAN)}, {all_as(call, one_type(call, 1), 1)})"


FUNCTIONS = (
    Function(("COALESCE",), (ANY,), one_type, _coalesce, variadic=True),
    Function(("IFNULL",), (ANY, ANY), one_type, _coalesce),
    Function(("NULLIF",), (ANY, ANY), same(0), _nullif),
    Function(("IF",), (TRUTH, ANY, ANY), lambda call: one_type(call, 1), _if),
    Function(("GREATEST",), (ANY,), one_type, _extreme("greatest"), variadic=True, least=2),
    Function(("LEAST",), (ANY,), one_type, _extreme("least"), variadic=True, least=2),
    Function(("CARDINALITY",), (COLLECTION,), INT, "CASE WHEN {0} IS NOT NULL THEN size({0}) END"),
    Function(("ARRAY_CONTAINS",), (LIST, ANY), BOOLEAN, _contains),
    Function(("ARRAY_DISTINCT",), (LIST,), same(0), "array_distinct({0})"),
    Function(("ARRAY_REVERSE",), (LIST,), same(0), "reverse({0})"),
    Function(("ARRAY_MAX",), (LIST,), lambda call: call.types[0].element.null(), "array_max({0})"),
    Function(("ARRAY_MIN",), (LIST,), lambda call: call.types[0].element.null(), "array_min({0})"),
    Function(("MAP_KEYS",), (DICTIONARY,), lambda call: array_of(call.types[0].arguments[0]), "map_keys({0})"),
    Function(("MAP_VALUES",), (DICTIONARY,), lambda call: array_of(call.types[0].element), "map_values({0})"),
    Function(("MAP",), (ANY,), _map_type, _map, 0, variadic=True, usage="MAP[key, value, …]"),
    Function(("ROW",), (ANY,), _row_type, _row, variadic=True),
)
