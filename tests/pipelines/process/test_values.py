"""What a state holds is its own, and looks the same in the epoch that wrote it as in every later one."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from tests.pipelines.process.engine.test_task import Epochs
from tests.pipelines.process.windows.test_function import Row, ms
from tidegate.pipelines.process import (
    Arrived,
    EventTimeExtension,
    FunctionRaised,
    InvalidDeclaration,
    LocalRun,
    OneInputEventTimeStreamProcessFunction,
    OneInputStreamProcessFunction,
    StateDeclarations,
    TwoInputBroadcastStreamProcessFunction,
    WrongValue,
)
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.process.engine.outputs import ListCollector, OutputColumns, as_tuple
from tidegate.pipelines.process.engine.rows import python_values
from tidegate.pipelines.process.state.declared import column_type, state_types
from tidegate.pipelines.process.values import copied, exact, record_type
from tidegate.pipelines.process.windows.function import Aggregate, WindowFunction, tumble
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.watermarks import Watermark

SD = StateDeclarations
OUTPUT = pa.schema([("k", pa.string()), ("noted", pa.string())])


class Record(NamedTuple):
    k: str
    number: int
    name: str


def spoilt(value: Any) -> None:
    """Change everything in `value` that can be changed."""
    if isinstance(value, dict):
        list(map(spoilt, value.values()))
        value["spoilt"] = None
    elif isinstance(value, list):
        list(map(spoilt, value))
        value.append("spoilt")


class Keeps(OneInputStreamProcessFunction):
    """Tells what its state held, and writes the next one of `values`; spoils all that it has been handed and has handed
    over."""

    def __init__(self, declaration: Any, values: list[Any]) -> None:
        self.declaration, self.values = declaration, values

    def uses_states(self):
        return (self.declaration,)

    def process_record(self, record: Record, output, ctx) -> None:
        state, value = ctx.get_state_manager().get_state(self.declaration), deepcopy(self.values[record.number])
        output.collect((record.k, repr(self.read(state))))
        spoilt(self.read(state))
        if hasattr(state, "value"):
            state.update(value)
        elif hasattr(state, "add"):
            state.add(value)
        else:
            state.put(f"key {record.number}", value)
            spoilt(list(state.values()))
            spoilt(state.get(f"key {record.number}"))
        spoilt(value)

    @staticmethod
    def read(state: Any) -> Any:
        if hasattr(state, "value"):
            return state.value()
        return state.get() if hasattr(state, "add") else dict(state.items())


INNER: dict[str, Any] = {"a": 1, "tags": {"x": 1, "y": None}, "more": [{"deep": {"z": 2}}, None]}
ROW = "ROW<a BIGINT, tags MAP<STRING, BIGINT>, more ARRAY<ROW<deep MAP<STRING, BIGINT>>>>"
EMPTY: dict[str, Any] = {"a": None, "tags": {}, "more": []}
NONE: dict[str, Any] = {"a": None, "tags": None, "more": None}


@pytest.mark.parametrize(
    ("declaration", "values", "held"),
    [
        (SD.value_state("s", ROW), [INNER, EMPTY, NONE], [None, INNER, EMPTY, NONE]),
        (SD.value_state("s", ROW), [(1, {"x": 1}, None)], [None, {"a": 1, "tags": {"x": 1}, "more": None}]),
        (SD.value_state("s", ROW), [{"a": 7}, {}], [None, {**NONE, "a": 7}, NONE]),
        (SD.value_state("s", "MAP<STRING, BIGINT>"), [{"x": 1}, {"y": 2}], [None, {"x": 1}, {"y": 2}]),
        (SD.value_state("s", "MAP<STRING, MAP<STRING, BIGINT>>"), [{"x": {"y": 1}}], [None, {"x": {"y": 1}}]),
        (SD.value_state("s", "ARRAY<MAP<STRING, BIGINT>>"), [[{"x": 1}, {}, None]], [None, [{"x": 1}, {}, None]]),
        (SD.value_state("s", "ARRAY<ARRAY<BIGINT>>"), [[[1], [], None, [2]]], [None, [[1], [], None, [2]]]),
        (SD.value_state("s", "ROW<t TIMESTAMP(3), d DECIMAL(5, 2)>"),
         [{"t": datetime(2026, 1, 1, 12), "d": Decimal("1.50")}],
         [None, {"t": datetime(2026, 1, 1, 12), "d": Decimal("1.50")}]),
        (SD.list_state("s", "MAP<STRING, BIGINT>"), [{"x": 1}, {"y": 2}], [[], [{"x": 1}], [{"x": 1}, {"y": 2}]]),
        (SD.list_state("s", ROW), [INNER, EMPTY], [[], [INNER], [INNER, EMPTY]]),
        (SD.list_state("s", "BIGINT"), [1, 2], [[], [1], [1, 2]]),
        (SD.map_state("s", "STRING", "MAP<STRING, BIGINT>"),
         [{"x": 1}, {}], [{}, {"key 0": {"x": 1}}, {"key 0": {"x": 1}, "key 1": {}}]),
        (SD.map_state("s", "STRING", ROW), [INNER, None], [{}, {"key 0": INNER}, {"key 0": INNER, "key 1": None}]),
        (SD.map_state("s", "STRING", "ARRAY<BIGINT>"), [[1], []], [{}, {"key 0": [1]}, {"key 0": [1], "key 1": []}]),
        (SD.reducing_state("s", "MAP<STRING, BIGINT>", lambda old, new: {**old, **new}),
         [{"x": 1}, {"y": 2}], [None, {"x": 1}, {"x": 1, "y": 2}]),
        (SD.reducing_state("s", "ARRAY<BIGINT>", lambda old, new: old + new), [[1], [2]], [None, [1], [1, 2]]),
    ],
    ids=lambda case: getattr(case, "type", None),
)  # fmt: skip
@pytest.mark.parametrize("apart", [False, True], ids=["one epoch", "an epoch each"])
def test_a_value_is_the_same_in_every_epoch(
    tmp_path: Path, declaration: Any, values: list[Any], held: list[Any], apart: bool
) -> None:
    values = [*values, *[deepcopy(values[-1])] * (len(held) - len(values))]
    function = Keeps(declaration, values)
    kind = arrow_type(parse_type(column_type(declaration)).spark)
    columns = StateColumns((("_key_k", pa.string()),), ((declaration.name, kind),))
    epochs = Epochs(tmp_path, 10, function, columns, OUTPUT)
    records = [Record("a", number, "") for number in range(len(held))]
    cuts = [[record] for record in records] if apart else [records]
    wanted = [("a", repr(value)) for value in held]
    assert [row for cut in cuts for row in epochs.run([tuple(record) for record in cut], 0)] == wanted
    local = LocalRun(function, lambda record: record.k)
    assert [row for cut in cuts for row in local.epoch([Arrived(cut)])[0]] == wanted


def test_columns_of_records_are_decoded_alike() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.int64())))), ("n", pa.int64())])
    rows = [{"m": {"a": [{"b": 1}, None], "c": None}, "n": 1}, None, {"m": None, "n": None}, {"m": {}, "n": 4}]
    array = pa.array([{**row, "m": row["m"] and list(row["m"].items())} if row else None for row in rows], kind)
    assert python_values(array) == rows
    assert python_values(array.slice(1, 2)) == rows[1:3]
    assert python_values(pa.chunked_array([array.slice(2), array.slice(0, 1)])) == [*rows[2:], rows[0]]
    assert python_values(array.slice(4)) == []
    assert python_values(pa.array([{}, None], pa.struct([]))) == [{}, None]
    pairs = [({"a": 1}, 2), ({"a": 3}, 4)]
    assert python_values(pa.array([pairs], pa.map_(pa.struct([("a", pa.int64())]), pa.int64()))) == [pairs]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us"), [datetime(2026, 1, 1, 12, 0, 0, 5), None, datetime(1, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, 12, tzinfo=UTC), None, datetime(9999, 12, 31, tzinfo=UTC)]),
        (pa.timestamp("us", "Asia/Tokyo"), [datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo")), None]),
        (pa.date32(), [date(2026, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)]),
        (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-99999999.99")]),
        (pa.int64(), [1, None, -(2**63)]),
        (pa.float64(), [1.5, None]),
        (pa.bool_(), [True, None, False]),
        (pa.string(), ["a", None, ""]),
        (pa.binary(), [b"a", None]),
    ],
    ids=str,
)
def test_values_are_those_of_arrow(kind: pa.DataType, values: list[Any]) -> None:
    """Many at once: the same values, and types, as one by one; with nulls and without, sliced and nested."""
    full = [value for value in values if value is not None]
    for array in (pa.array(values, kind), pa.array(full, kind), pa.array(values, kind).slice(1), pa.array([], kind)):
        found, expected = python_values(array), [item.as_py() for item in array]
        assert (found, list(map(repr, found))) == (expected, list(map(repr, expected)))
    assert python_values(pa.array([values, None, full], pa.list_(kind))) == [values, None, full]


def test_windows_keep_a_map() -> None:
    """The aggregate's own value, epoch after epoch, in a ROW in a map."""

    def add(kept: dict[str, int], row: Row) -> dict[str, int]:
        kept[str(row.time)] = kept.get(str(row.time), 0) + 1
        return kept

    counts = Aggregate("MAP<STRING, BIGINT>", dict, add, lambda key, window, kept: (key, window.start, kept))
    function = WindowFunction(tumble(ms(10)), counts, lambda row: row.time)
    run = LocalRun(EventTimeExtension.wrap_process_function(function), lambda row: row.key)
    for times in ([1, 2], [2], [3]):
        run.epoch([Arrived([Row("a", time) for time in times])])
    assert run.epoch([Arrived((), Watermark(10))])[0] == [("a", 0, {"1": 1, "2": 2, "3": 1})]


class MapWindow(OneInputEventTimeStreamProcessFunction):
    """Counts names in a map inside of a row, as a window's aggregate does."""

    kept = SD.map_state("kept", "BIGINT", "ROW<begin BIGINT, kept MAP<STRING, BIGINT>>")

    def uses_states(self):
        return (self.kept,)

    def process_record(self, record: Record, output, ctx) -> None:
        state = ctx.get_state_manager().get_state(self.kept)
        found = state.get(0, {"begin": 0, "kept": {}})
        found["kept"][record.name] = found["kept"].get(record.name, 0) + 1
        state.put(0, found)
        output.collect((record.k, repr(found["kept"])))


def test_a_map_inside_of_a_row_goes_on_in_files(tmp_path: Path) -> None:
    kind = arrow_type(parse_type(column_type(MapWindow.kept)).spark)
    columns = StateColumns((("_key_k", pa.string()),), (("kept", kind),))
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(MapWindow()), columns, OUTPUT)
    emitted = [epochs.run([("a", number, name)], number) for number, name in enumerate("xyx")]
    assert emitted == [[("a", "{'x': 1}")], [("a", "{'x': 1, 'y': 1}")], [("a", "{'x': 2, 'y': 1}")]]


RULES = SD.broadcast_state("rules", "STRING", "ROW<least BIGINT, names ARRAY<STRING>>")


class Changes(TwoInputBroadcastStreamProcessFunction):
    """Changes in place what broadcast state has handed out."""

    def uses_states(self):
        return (RULES,)

    def process_record_from_broadcast_input(self, record: Record, ctx) -> None:
        rule = {"least": record.number, "names": [record.name]}
        ctx.get_state_manager().get_state(RULES).put(record.k, rule)
        spoilt(rule)

    def process_record_from_non_broadcast_input(self, record: Record, output, ctx) -> None:
        rules = ctx.get_state_manager().get_state(RULES)
        for rule in (rules.get("r"), dict(rules.items())["r"], next(rules.values())):
            rule["least"] = 99
            spoilt(rule)
        output.collect(rules.get("r"))


def test_what_broadcast_state_hands_out_is_no_way_to_write_it() -> None:
    run = LocalRun(Changes(), lambda record: record.k)
    rule, held = Record("r", 1, "x"), {"least": 1, "names": ["x"]}
    assert run.epoch([Arrived([rule], input=1), Arrived([Record("a", 0, ""), Record("b", 0, "")])]) == ([held, held],)
    assert run.broadcast == {"rules": {"r": held}}
    assert run.epoch([Arrived([Record("a", 0, "")])]) == ([held],)


class Swapped(NamedTuple):
    b: int
    a: int


CET = ZoneInfo("Europe/Paris")
NOON = datetime(2026, 1, 1, 12)

EXACT: list[tuple[str, Any, Any]] = [
    ("BIGINT", 1.0, 1),
    ("BIGINT", Decimal("2"), 2),
    ("BIGINT", np.int64(3), 3),
    ("TINYINT", -128, -128),
    ("DOUBLE", 3, 3.0),
    ("FLOAT", 0.1, 0.10000000149011612),
    ("FLOAT", float("inf"), float("inf")),
    ("DECIMAL(5, 2)", Decimal("1.5"), Decimal("1.50")),
    ("DECIMAL(5, 2)", 7, Decimal("7.00")),
    ("BOOLEAN", np.bool_(True), True),
    ("VARCHAR(3)", "äöü", "äöü"),
    ("BYTES", bytearray(b"ab"), b"ab"),
    ("DATE", NOON.replace(hour=0), date(2026, 1, 1)),
    ("TIMESTAMP(3)", NOON.replace(microsecond=5000), NOON.replace(microsecond=5000)),
    ("TIMESTAMP(3)", NOON.replace(tzinfo=CET), NOON.replace(hour=11)),
    ("TIMESTAMP_LTZ(3)", NOON, NOON.replace(tzinfo=ZoneInfo("UTC"))),
    ("TIMESTAMP_LTZ(3)", NOON.replace(tzinfo=CET), NOON.replace(hour=11, tzinfo=ZoneInfo("UTC"))),
    ("ROW<a BIGINT, b BIGINT>", Swapped(b=2, a=1), {"a": 1, "b": 2}),
    ("ROW<a BIGINT, b BIGINT>", {"b": 2}, {"a": None, "b": 2}),
    ("ARRAY<DOUBLE>", (1, None), [1.0, None]),
    ("MAP<FLOAT, DOUBLE>", {0.1: 1}, {0.10000000149011612: 1.0}),
    ("MAP<STRING, BIGINT>", [("a", 1)], {"a": 1}),
]  # fmt: skip

REFUSED: list[tuple[str, Any, str]] = [
    ("BIGINT", 1.5, r"1.5 \(float\) is no BIGINT"),
    ("BIGINT", Decimal("1.5"), "is no BIGINT"),
    ("BIGINT", True, r"True \(bool\) is no BIGINT"),
    ("BIGINT", "1", "is no BIGINT"),
    ("BIGINT", float("nan"), "is no BIGINT"),
    ("BIGINT", 2**63, "is no BIGINT"),
    ("TINYINT", 128, "is no TINYINT"),
    ("BIGINT NOT NULL", None, "NULL is no BIGINT NOT NULL"),
    ("DOUBLE", 2**53 + 1, "is no DOUBLE"),
    ("DOUBLE", True, "is no DOUBLE"),
    ("FLOAT", 1e300, "is no FLOAT"),
    ("FLOAT", 2**24 + 1, "is no FLOAT"),
    ("DECIMAL(5, 2)", 1.5, "is no DECIMAL"),
    ("DECIMAL(5, 2)", Decimal("1.505"), "is no DECIMAL"),
    ("DECIMAL(5, 2)", 1000, "is no DECIMAL"),
    ("DECIMAL(5, 2)", Decimal("NaN"), "is no DECIMAL"),
    ("BOOLEAN", 1, "is no BOOLEAN"),
    ("STRING", b"a", "is no STRING"),
    ("STRING", "\ud800", "is no STRING"),
    ("VARCHAR(3)", "abcd", r"is no VARCHAR\(3\)"),
    ("BYTES", "a", "is no BYTES"),
    ("VARBINARY(1)", b"ab", "is no VARBINARY"),
    ("DATE", NOON, "is no DATE"),
    ("DATE", 5, "is no DATE"),
    ("TIMESTAMP(3)", 1_767_268_800_000, r"1767268800000 \(int\) is no TIMESTAMP\(3\)"),
    ("TIMESTAMP(3)", NOON.replace(microsecond=1), "is no TIMESTAMP"),
    ("TIMESTAMP(3)", date(2026, 1, 1), "is no TIMESTAMP"),
    ("ROW<a BIGINT>", {"a": 1, "b": 2, "c": 3}, "a ROW has the fields a, and not b, c"),
    ("ROW<a BIGINT>", {"b": 1}, "a ROW has the fields a, and not b"),
    ("ROW<a BIGINT>", (1, 2), "a ROW has the fields a, and 2 values are given"),
    ("ROW<a BIGINT, c BIGINT>", Swapped(1, 2), "a named tuple of b, a is given"),
    ("ROW<a BIGINT>", 5, "a ROW is a dict, or a tuple of all its fields, not int"),
    ("ROW<a ARRAY<INT NOT NULL>>", ([1, None],), "field a: element 1: NULL is no INT NOT NULL"),
    ("MAP<STRING, BIGINT>", 5, "a MAP is a dict, not int"),
    ("MAP<STRING, BIGINT>", {"a": "b"}, "at key 'a': 'b' .str. is no BIGINT"),
    ("MAP<STRING, BIGINT>", {None: 1}, "at key None: NULL is no STRING NOT NULL"),
    ("MAP<STRING, BIGINT>", [("a", 1), ("a", 2)], "a MAP has each key once"),
    ("MAP<DOUBLE, BIGINT>", {float("nan"): 1}, "NaN is no key"),
    ("ARRAY<STRING>", "abc", "an ARRAY is a list, not str"),
    ("ARRAY<STRING>", 5, "an ARRAY is a list, not int"),
    ("ARRAY<BIGINT>", {1, 2}, "an ARRAY has an order"),
]


@pytest.mark.parametrize(("kind", "value", "form"), EXACT, ids=str)
def test_a_value_is_converted_to_the_form_that_is_read_back(kind: str, value: Any, form: Any) -> None:
    declared = parse_type(kind)
    found, column = exact(declared)(value), arrow_type(declared.spark)
    read = python_values(pa.array([found], column))[0]
    assert [found, repr(found), repr(read)] == [form, repr(form), repr(form)]
    copy = copied(declared)
    assert copy is None or (copy(found) == form and copy(found) is not found and copy(None) is None)


@pytest.mark.parametrize(("kind", "value", "expected"), REFUSED)
def test_a_value_that_a_type_cannot_hold_is_refused(kind: str, value: Any, expected: str) -> None:
    """In state with the key and the record, in an output with the column."""
    with pytest.raises(WrongValue, match=expected):
        exact(parse_type(kind))(value)
    declaration = SD.list_state("s", kind)
    run = LocalRun(Keeps(declaration, [value]), lambda record: record.k)
    with pytest.raises(FunctionRaised, match=f"key 'a', record .*WrongValue: state 's': .*{expected}"):
        run.epoch([Arrived([Record("a", 0, "")])])
    if value is not None:
        columns = OutputColumns(pa.schema([("x", arrow_type(parse_type(kind).spark))]), [parse_type(kind)])
        with pytest.raises(WrongValue, match=f"column x: .*{expected.replace(' NOT NULL', '')}"):
            columns.arrays([columns._taken((value,))])


def test_a_key_is_found_in_the_epoch_that_wrote_it_as_in_later_ones() -> None:
    class Finds(OneInputStreamProcessFunction):
        seen = SD.map_state("seen", "FLOAT", "BIGINT")

        def uses_states(self):
            return (self.seen,)

        def process_record(self, record: Record, output, ctx) -> None:
            seen = ctx.get_state_manager().get_state(self.seen)
            found = seen.get(record.number / 10, 0)
            seen.put(record.number / 10, found + 1)
            output.collect((found, seen.contains(record.number / 10), seen.contains(None), list(seen.keys())))

    records = [Record("a", 1, ""), Record("a", 1, "")]
    one, several = LocalRun(Finds(), lambda record: record.k), LocalRun(Finds(), lambda record: record.k)
    (together,) = one.epoch([Arrived(records)])
    apart = [row for record in records for row in several.epoch([Arrived([record])])[0]]
    assert together == apart == [(0, True, False, [0.10000000149011612]), (1, True, False, [0.10000000149011612])]


@pytest.mark.parametrize(
    ("kinds", "record", "change", "row"),
    [
        (["STRING", "BIGINT"], {"x": "a", "y": 1}, lambda record: record.update(y=2), ("a", 1)),
        (["STRING", "ARRAY<BIGINT>"], ("a", [1]), lambda record: record[1].append(2), ("a", [1])),
        (["STRING", "BYTES"], ("a", bytearray(b"1")), lambda record: record[1].extend(b"2"), ("a", b"1")),
        (["STRING", "ROW<m MAP<STRING, BIGINT>>"], ("a", {"m": {}}), lambda record: record[1]["m"].update(a=1),
         ("a", {"m": []})),
    ],
)  # fmt: skip
def test_a_record_is_collected_as_it_is_at_that_moment(kinds: list[str], record: Any, change: Any, row: Any) -> None:
    types = [parse_type(kind) for kind in kinds]
    columns = OutputColumns(pa.schema([(n, arrow_type(t.spark)) for n, t in zip("xy", types, strict=True)]), types)
    collector = ListCollector(columns.taken)
    collector.collect(record)
    change(record)
    assert [array[0].as_py() for array in columns.arrays(collector.records)] == list(row)


def test_a_named_tuple_is_read_by_its_names() -> None:
    assert as_tuple(Swapped(b=2, a=1), ["a", "b"]) == (1, 2)
    assert as_tuple(record_type(("an id", "a"))(1, 2), ["an id", "a"]) == (1, 2)
    with pytest.raises(WrongValue, match="a named tuple of b, a is given"):
        as_tuple(Swapped(1, 2), ["x", "y"])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (int, "F declares state 's' as <class 'int'>: expected a type"),
        ("BIGNIT", "F declares state 's' as BIGNIT: there is no type BIGNIT"),
        ("INTERVAL DAY TO SECOND", "INTERVAL is not supported"),
        ("ROW<a MAP<STRING, BIGNIT>>", "there is no type BIGNIT"),
        ("ARRAY<MAP<ROW<a INT>, BIGINT>>", "no dict can have such keys"),
    ],
)
def test_types_that_there_are_not_are_reported_at_once(kind: Any, expected: str) -> None:
    declaration = SD.value_state("s", kind)
    with pytest.raises(InvalidDeclaration, match=expected):
        state_types([declaration], "F")
    with pytest.raises(InvalidDeclaration, match=expected.replace("F declares", "Keeps declares")):
        LocalRun(Keeps(declaration, []), lambda record: record.k)
