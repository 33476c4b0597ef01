"""What a step's files hold, read with Spark."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from tests.cases import at_length
from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tidegate.pipelines.connectors.spec import REJECTED, REJECTED_TYPE, SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem import lines
from tidegate.pipelines.sql import compile_script

METADATA = tuple(
    Column(name, flink, spark, metadata=key)
    for name, flink, spark, key in (
        ("p", "STRING", "STRING", "file.path"),
        ("n", "STRING", "STRING", "file.name"),
        ("s", "BIGINT", "BIGINT", "file.size"),
        ("m", "TIMESTAMP_LTZ(3)", "TIMESTAMP", "file.modification-time"),
    )
)


def read(spark, bench, number=-1):
    """The rows of a step, in order; their schema is checked."""
    frame = bench.source().read(spark, bench.steps[number])
    wanted = {column.name: column.spark_type for column in bench.table.physical_columns}
    ddl = ", ".join(f"{name} {of}" for name, of in {**wanted, **SOURCE_COLUMNS}.items())
    found = {field.name: field.dataType for field in frame.schema}
    assert found == {field.name: field.dataType for field in StructType.fromDDL(ddl)}
    rows = frame.collect()
    assert sorted(rows, key=lambda row: row["_offset"]) == sorted(rows, key=lambda row: row["_seq"])
    assert len({row["_offset"] for row in rows}) == len(rows)
    return sorted(rows, key=lambda row: row["_offset"])


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)


def us_of(nanos: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=nanos // 1000)


def test_lines_of_files_larger_than_a_range_keep_their_places(spark, files: Files, monkeypatch) -> None:
    monkeypatch.setattr(lines, "RANGE_BYTES", 1000)
    monkeypatch.setattr(lines.read_lines, "__defaults__", (1000,))
    first = [{"id": number} for number in range(500)]
    second = [{"id": 1000 + number} for number in range(300)]
    files.write("b.json", first)
    files.write("a.json", second)
    files.write("c.json", "")
    bench = files.bench()
    bench.plan()
    rows = read(spark, bench)
    assert [row["id"] for row in rows] == [row["id"] for row in first + second]
    assert bench.source().read(spark, bench.steps[0]).rdd.getNumPartitions() > 5
    assert {(row["_op"], row["_split"]) for row in rows} == {("+I", "0")}
    assert [row["_rowtime"] for row in rows[499:501]] == [at(LONG_AGO + 1), at(LONG_AGO + 2)]
    assert rows[0]["_seq"].asDict() == {"phase": 1, "log": 0, "file": 0, "position": 0, "row": 0}
    assert rows[500]["_seq"].asDict() == {"phase": 1, "log": 0, "file": 1, "position": 0, "row": 0}


def test_a_csv_field_of_several_lines_is_one_row_wherever_a_range_ends(spark, files: Files, monkeypatch) -> None:
    monkeypatch.setattr(lines.read_lines, "__defaults__", (300,))
    notes = [f'see list {n}:\r\n7,apples\n"{n}" pears,\n' + "8,x\n" * (n % 150) for n in range(60)]
    text = "".join(f'{n},"{note.replace(chr(34), chr(34) * 2)}"\n' for n, note in enumerate(notes))
    files.write("a.csv", text + '60,5" pipe\n')
    files.write("b.csv", '61,b\n"seven,"x\n7,apples\n"62","\n7,apples\n')
    bench = files.bench(columns={"id": "INT", "v": "STRING"}, format="csv", **{"format_on-error": "quarantine"})
    bench.plan()
    frame = bench.source().read(spark, bench.steps[0])
    assert frame.rdd.getNumPartitions() > 10
    rows = sorted(frame.collect(), key=lambda row: row["_offset"])
    fine = [(row["id"], row["v"]) for row in rows if row[REJECTED] is None]
    assert fine == [*enumerate(notes), (60, '5" pipe'), (61, "b"), (7, "apples")]
    (seven, open_) = [row[REJECTED] for row in rows if row[REJECTED]]
    assert (seven["value"], open_["value"]) == (b'"seven,"x', b'"62","\n7,apples')
    assert open_["reason"].endswith(
        "b.csv, the line at byte 24: a quote is opened and not closed: a message is one record"
    )


def test_json_over_several_lines_and_in_an_array(spark, files: Files, monkeypatch) -> None:
    monkeypatch.setattr(lines.read_lines, "__defaults__", (30,))
    files.write(
        "a.json", '{\n  "id": 1,\n  "v":\n  {"id": 7}\n}\n{"id": 2}\n{"id": 3, "v\n{"id": 4}\n{\n"id":\n"x"\n}\n'
    )
    files.write("b.json", '[\n  {"id": 5, "v": "],[{"},\n  {"id": "x"},\n  {"id": 6}\n]\n')
    files.write("c.json", '[{"id": 8}, {"id": 9}')
    bench = files.bench(columns={"id": "INT", "v": "STRING"}, **{"format_on-error": "quarantine"})
    bench.plan()
    rows = sorted(bench.source().read(spark, bench.steps[0]).collect(), key=lambda row: row["_offset"])
    fine = [(row["id"], row["v"]) for row in rows if row[REJECTED] is None]
    assert fine == [(1, '{"id":7}'), (2, None), (4, None), (5, "],[{"), (6, None), (8, None)]
    assert [row[REJECTED]["value"] for row in rows if row[REJECTED]] == [
        b'{"id": 3, "v',
        b'{\n"id":\n"x"\n}',
        b'{"id": "x"}',
        b' {"id": 9}',
    ]


def test_metadata_and_names_that_have_to_be_quoted(spark, files: Files) -> None:
    path = files.write("sub/a +%41é.csv", "1,x\n\n2,y\n")
    bench = files.bench("build", {"id": "INT", "v": "STRING"}, format="csv")
    bench.table = replace(bench.table, columns=(*bench.table.columns, *METADATA))
    bench.plan()
    one, two = read(spark, bench)
    assert [(row["id"], row["v"], row["_op"]) for row in (one, two)] == [(1, "x", "c"), (2, "y", "c")]
    assert (one["p"], one["n"], one["s"], one["m"]) == (str(path), "a +%41é.csv", 9, at(LONG_AGO + 1))


def test_parquet_rows_have_their_numbers_and_metadata(spark, files: Files) -> None:
    columns = {"id": "BIGINT", "d": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)", "r": "ARRAY<INT>"}
    for number, name in enumerate(("z +%41é.parquet", "a.parquet")):
        made = pa.table(
            {
                "r": pa.array([[1, None]] * 3, pa.list_(pa.int32())),
                "id": pa.array([10 * number + place for place in range(3)], pa.int32()),
                "d": pa.array([Decimal("1.50")] * 3, pa.decimal128(8, 2)),
                "at": pa.array([datetime.datetime(2026, 1, 1)] * 3, pa.timestamp("ms")),
                "other": [1] * 3,
            }
        )
        files.write(name, "")
        pq.write_table(made, files.path / name, row_group_size=2)
        files.touch(name, LONG_AGO + number)
    bench = files.bench("build", columns, format="parquet")
    bench.table = replace(bench.table, columns=(*bench.table.columns, *METADATA))
    bench.plan()
    rows = read(spark, bench)
    assert [row["id"] for row in rows] == [0, 1, 2, 10, 11, 12]
    assert [(row["_seq"]["file"], row["_seq"]["position"]) for row in rows[1:4]] == [(0, 1), (0, 2), (1, 0)]
    assert (rows[0]["d"], rows[0]["at"], rows[0]["r"]) == (Decimal("1.50"), datetime.datetime(2026, 1, 1), [1, None])
    assert [row["n"] for row in rows[::3]] == ["z +%41é.parquet", "a.parquet"]
    assert (rows[3]["_op"], rows[3]["_rowtime"], rows[3]["m"]) == ("c", at(LONG_AGO + 1), at(LONG_AGO + 1))


def test_a_parquet_column_and_a_folder_may_have_other_names_than_theirs(spark, files: Files) -> None:
    names = {"id": "_id", "v": "a b;{}", "w": "a.b", "day": "_day"}
    made = pa.table({"_id": [1], "a b;{}": ["x"], "a.b": [2.5], "id": [9], "a": [{"b": 1.0}], "day": ["no"]})
    files.write("_day=7/a.parquet", "")
    pq.write_table(made, files.path / "_day=7" / "a.parquet")
    files.touch("_day=7/a.parquet", LONG_AGO)
    columns = {"id": "BIGINT", "v": "STRING", "w": "DOUBLE", "day": "INT"}
    bench = files.bench("build", columns, format="parquet")
    named = tuple(replace(column, field_name=names[column.name]) for column in bench.table.columns)
    bench.table = replace(bench.table, columns=named, partition_columns=("day",))
    bench.plan()
    (row,) = read(spark, bench)
    assert [row[name] for name in columns] == [1, "x", 2.5, 7]


def test_names_are_no_patterns(spark, files: Files) -> None:
    """A file that comes later is read by a step of its own, whatever the names before it match."""
    names = (
        "q?/a:10:00.parquet",
        "x[1].parquet",
        "{a,b}.parquet",
        "s*r.parquet",
        "back\\slash.parquet",
        "dt=[z]/1.parquet",
    )
    beside = ("q1/a.parquet", "x1.parquet", "a.parquet", "sXr.parquet", "backslash.parquet", "dt=z/1.parquet")
    bench = files.bench(path=str(files.path / "run[1]"), format="parquet")
    folder = Files(files.path / "run[1]")
    Files(files.path / "run1")
    for first, step in ((0, names), (10, beside)):
        for number, name in enumerate(step):
            folder.write(name, "")
            pq.write_table(pa.table({"id": pa.array([first + number], pa.int32())}), folder.path / name)
            folder.touch(name, LONG_AGO + first + number)
        bench.plan()
    assert [row["id"] for row in read(spark, bench, 0)] == list(range(6))
    assert [row["id"] for row in read(spark, bench, 1)] == list(range(10, 16))


@pytest.mark.parametrize(
    ("column", "declared", "error"),
    [
        (pa.array([1], pa.int64()), "INT", "has column id as int64, the script as INT"),
        (pa.array([1], pa.uint16()), "TINYINT", "has column id as uint16"),
        (pa.array([1], pa.timestamp("us", tz="UTC")), "TIMESTAMP(3)", "has column id as timestamp"),
        (pa.array([Decimal("1.555")], pa.decimal128(6, 3)), "DECIMAL(10, 2)", "has column id as decimal128"),
        (pa.array(["x"]), "BYTES", "has column id as string"),
        (None, "INT", r"has no column of the table \(id\); it has other"),
    ],
)
def test_parquet_of_other_types_is_refused(files: Files, column, declared: str, error: str) -> None:
    files.write("a.parquet", "")
    made = pa.table({"other": [1]} if column is None else {"id": column})
    pq.write_table(made, files.path / "a.parquet")
    bench = files.bench(columns={"id": declared}, format="parquet")
    files.touch("a.parquet", LONG_AGO)
    bench.plan()
    with pytest.raises(SourceError, match=error):
        bench.source().read(None, bench.steps[0])  # type: ignore[arg-type]


EXCLUDED = [
    ("VARCHAR(3)", pa.array(["abc", "abcd", None]), "column v: 'abcd' does not fit VARCHAR(3)"),
    ("BINARY(2)", pa.array([b"ab", b"abc", None]), "column v: '616263' does not fit BINARY(2)"),
    (
        "TIMESTAMP(0)",
        pa.array([0, 1_500_000, None], pa.timestamp("us")),
        "column v: '1970-01-01 00:00:01.5' does not fit TIMESTAMP(0)",
    ),
    (
        "TIMESTAMP_LTZ(3)",
        pa.array([-1000, 1_500_001, None], pa.timestamp("us", "UTC")),
        "column v: '1970-01-01 00:00:01.500001' does not fit TIMESTAMP_LTZ(3)",
    ),
    ("ARRAY<VARCHAR(1)>", pa.array([["a"], ["a", "bc"], None]), """column v: '["a","bc"]' does not fit"""),
    ("ARRAY<INT NOT NULL>", pa.array([[1], [None], None], pa.list_(pa.int32())), "column v: '[null]' does not fit"),
    (
        "ROW<a VARCHAR(1), b INT NOT NULL>",
        pa.array([{"a": "x", "b": 1}, {"a": "x", "b": None}, None], pa.struct([("a", pa.string()), ("b", pa.int32())])),
        """column v: '{"a":"x"}' does not fit""",
    ),
    ("MAP<VARCHAR(1), INT>", pa.array([[("a", 1)], [("ab", 1)], None], pa.map_(pa.string(), pa.int32())), "column v"),
    (
        "MAP<STRING, INT>",
        pa.array([[("a", 1), ("b", 1)], [("a", 1), ("a", 2)], []], pa.map_(pa.string(), pa.int32())),
        """column v: '{"a":1,"a":2}' does not fit MAP<STRING, INT>""",
    ),
    ("INT NOT NULL", pa.array([1, None, 2], pa.int32()), "column v is NOT NULL, and the row has no value for it"),
]


@pytest.mark.parametrize("number", range(len(EXCLUDED)))
def test_parquet_rows_that_the_declaration_excludes(spark, files: Files, number: int) -> None:
    declared, values, error = EXCLUDED[number]
    script = (
        f"CREATE TABLE t (id INT, v {declared}) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'parquet')"
    )
    columns = compile_script(script).table("t").columns
    path = files.write("a.parquet", "")
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": values}), path)
    files.touch("a.parquet", LONG_AGO)

    def planned(**options: str):
        bench = files.bench(format="parquet", **options)
        bench.table = replace(bench.table, columns=columns)
        bench.plan()
        return bench

    assert planned().failure(spark).what.startswith(f"t: {path}, row 1: {error}")
    bench = planned(**{"format_on-error": "quarantine"})
    rows = sorted(bench.source().read(spark, bench.steps[0]).collect(), key=lambda row: row["_offset"])
    assert [row["id"] for row in rows if row[REJECTED] is None] == [1, 3]
    assert rows[1][REJECTED]["reason"].startswith(f"{path}, row 1: {error}")
    assert rows[1][REJECTED]["value"].startswith(b'{"id":2')


def test_a_parquet_file_that_does_not_fit_is_passed_over_whole(spark, files: Files) -> None:
    ids = pa.array([1], pa.int32())
    made = {
        "fine": pa.table([ids, ids], names=["id", "ID"]),
        "twice": pa.table([ids, ids], names=["id", "id"]),
        "other": pa.table({"Id": ids}),
        "half": pa.table({"id": pa.array([1.5], pa.float32()).cast(pa.float16())}),
        "no": None,
    }
    for name, rows in made.items():
        path = files.write(f"{name}.parquet", "id\n1\n")
        if rows is not None:
            pq.write_table(rows, path)
        files.touch(f"{name}.parquet", LONG_AGO + len(name))
    bench = files.bench(format="parquet", **{"format_on-error": "quarantine"})
    bench.max_rows = 100
    bench.plan()
    found = bench.source().read(spark, bench.steps[0]).collect()
    assert [row["id"] for row in found if row[REJECTED] is None] == [1]
    reasons = sorted(row[REJECTED]["reason"].removeprefix(f"{files.path}/") for row in found if row[REJECTED])
    assert [reason[:70] for reason in reasons] == [
        "half.parquet, row 0: the file half.parquet has column id as halffloat, the script as INT"[:70],
        "no.parquet, row 0: the file no.parquet is no Parquet file: Parquet fil"[:70],
        "other.parquet, row 0: the file other.parquet has no column id; it has Id, whose letters"[:70],
        "twice.parquet, row 0: the file twice.parquet has the column id twice"[:70],
    ]


BERLIN = pa.timestamp("ns", "Europe/Berlin")
NANOS = 1_706_695_872_123_456_000
AT_US = us_of(NANOS)
AS_WRITTEN = {
    "ns": ("TIMESTAMP(6)", pa.array([NANOS, NANOS + 1, None], pa.timestamp("ns")), [AT_US, None, None]),
    "zoned": ("TIMESTAMP_LTZ(6)", pa.array([NANOS, None, NANOS + 1], BERLIN), [AT_US, None, None]),
    "ms": ("TIMESTAMP(3)", pa.array([1, 2**61, None], pa.timestamp("ms")), [us_of(1_000_000), None, None]),
    "u8": ("TINYINT", pa.array([127, 128, None], pa.uint8()), [127, None, None]),
    "u32": ("BIGINT", pa.array([2**32 - 1, None, 0], pa.uint32()), [2**32 - 1, None, 0]),
    "u64": ("BIGINT", pa.array([1, None, 2**63], pa.uint64()), [1, None, None]),
    "u64d": ("DECIMAL(20, 0)", pa.array([2**64 - 1, None, 0], pa.uint64()), [Decimal(2**64 - 1), None, Decimal(0)]),
    "nothing": ("ARRAY<INT>", pa.nulls(3), [None] * 3),
    "lists": (
        "ARRAY<TIMESTAMP(6)>",
        pa.array([[NANOS], None, [NANOS, NANOS + 1]], pa.large_list(pa.timestamp("ns"))),
        [[AT_US], None, None],
    ),
    "word": ("STRING", pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"]),
    "view": ("STRING", pa.array(["a", None, "b"], pa.string_view()), ["a", None, "b"]),
    "half": ("FLOAT", pa.array([1.5, None, 0.5], pa.float16()), [1.5, None, 0.5]),
    "day": (
        "DATE",
        pa.array([0, None, 86_400_000], pa.date64()),
        [datetime.date(1970, 1, 1), None, datetime.date(1970, 1, 2)],
    ),
    "later": ("STRING", None, [None] * 3),
}
"""What a file has (None: not the column) under which declaration, and what is read."""


def test_parquet_as_pandas_polars_and_arrow_write_it(spark, files: Files) -> None:
    """A value that is none of its type fails the step, or goes to quarantine with its row."""
    path = files.write("at 10:00:00.parquet", "")
    made = {name: column for name, (_, column, _) in AS_WRITTEN.items() if column is not None}
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int32()), **made}), path)
    files.touch(path.name, LONG_AGO)
    declared = ", ".join(f"`{name}` {of}" for name, (of, _, _) in AS_WRITTEN.items())
    script = (
        f"CREATE TABLE t (id INT, {declared}) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'parquet')"
    )

    def planned(columns: list[Column], **options: str):
        bench = files.bench(format="parquet", **options)
        bench.table = replace(bench.table, columns=tuple(columns))
        bench.plan()
        return bench

    columns = list(compile_script(script).table("t").columns)
    bench = planned(columns, **{"format_on-error": "quarantine"})
    first, second, third = sorted(bench.source().read(spark, bench.steps[0]).collect(), key=lambda row: row["_offset"])
    assert [first[name] for name in AS_WRITTEN] == [expected[0] for _, _, expected in AS_WRITTEN.values()]
    assert second[REJECTED]["reason"].startswith(f"{path}, row 1: column ns: '2024-01-31 10:11:12.123456001' does not")
    assert third[REJECTED]["reason"].startswith(f"{path}, row 2: column zoned: '")
    for name, (_, _, expected) in AS_WRITTEN.items():
        one = planned(
            [column for column in columns if column.name in ("id", name)], **{"format_on-error": "quarantine"}
        )
        rows = sorted(one.source().read(spark, one.steps[0]).collect(), key=lambda row: row["_offset"])
        assert [row[name] for row in rows] == expected, name
    failed = planned([column for column in columns if column.name in ("id", "u8")]).failure(spark)
    assert failed.what == f"t: {path}, row 1: column u8: '128' does not fit TINYINT"


@pytest.mark.parametrize("declared", ["TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"])
def test_times_of_int96(spark, files: Files, declared: str) -> None:
    """As Spark 3 writes times: also beyond what nanoseconds hold, in lists, and with less than a microsecond."""
    path = files.write("a.parquet", "")
    far = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)
    us = pa.timestamp("us")
    made = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([far], us), "l": pa.array([[far]], pa.list_(us))})
    pq.write_table(made, path, use_deprecated_int96_timestamps=True)
    files.touch("a.parquet", LONG_AGO)
    finer = pa.table({"id": pa.array([2, 3], pa.int32()), "at": pa.array([NANOS, NANOS + 1], pa.timestamp("ns"))})
    pq.write_table(finer, files.path / "b.parquet", use_deprecated_int96_timestamps=True)
    files.touch("b.parquet", LONG_AGO + 1)
    columns = {"id": "INT", "at": declared, "l": f"ARRAY<{declared}>"}
    bench = files.bench(columns=columns, format="parquet", **{"format_on-error": "quarantine"})
    kind = "TIMESTAMP" if "LTZ" in declared else "TIMESTAMP_NTZ"
    table = bench.table
    bench.table = replace(table, columns=(*table.columns[:2], replace(table.columns[2], spark_type=f"ARRAY<{kind}>")))
    bench.plan()
    rows = sorted(bench.source().read(spark, bench.steps[0]).collect(), key=lambda row: row["_offset"])
    assert [row[REJECTED] for row in rows[:2]] == [None, None]
    assert [(row["id"], row["at"], row["l"]) for row in rows[:2]] == [(1, far, [far]), (2, AT_US, None)]
    assert "column at: '2024-01-31 10:11:12.123456001' does not fit" in rows[2][REJECTED]["reason"]


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_a_parquet_file_whose_rows_cannot_be_read(spark, files: Files, how: str) -> None:
    path = files.write("a +é.parquet", "")
    pq.write_table(pa.table({"id": pa.array(range(10_000), pa.int32())}), path, compression="gzip")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    files.touch("a +é.parquet", LONG_AGO)
    bench = files.bench(format="parquet")
    bench.plan()
    explained = bench.failure(spark, between=lambda: path.unlink() if how == "gone" else None)
    assert explained.what.startswith(f"t: the file a +é.parquet {'is damaged' if how == 'damaged' else 'changed'}")


@pytest.mark.parametrize("kind", at_length(["gz", "bz2", "zst"]))
def test_an_archive_that_is_cut(spark, files: Files, kind: str) -> None:
    lines_of = "".join(f'{{"id": {number}}}\n' for number in range(100_000)).encode()
    codec = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}[kind]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(lines_of)
    whole = sink.getvalue().to_pybytes()
    path = files.write(f"a.json.{kind}", whole[: -len(whole) // 3])
    bench = files.bench()
    bench.plan()
    explained = bench.failure(spark)
    assert explained.what.startswith(f"t: {path}, the line at byte ")
    assert "the archive is cut or damaged" in explained.what
    bench = files.bench(**{"format_on-error": "quarantine"})
    bench.plan()
    rows = sorted(bench.source().read(spark, bench.steps[0]).collect(), key=lambda row: row["_offset"])
    assert [row["id"] for row in rows[:-1]] == list(range(len(rows) - 1))
    assert "the archive is cut or damaged" in rows[-1][REJECTED]["reason"]


def test_what_is_no_parquet_file_is_an_error(files: Files) -> None:
    files.write("a.parquet", "id\n1\n")
    bench = files.bench(format="parquet")
    bench.plan()
    with pytest.raises(SourceError, match=r"the file a\.parquet is no Parquet file"):
        bench.source().read(None, bench.steps[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "declarable"),
    [
        (pa.int64(), True),
        (pa.decimal128(5, 1), True),
        (pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.date32())]))), True),
        (pa.uint64(), True),
        (pa.timestamp("ns"), True),
        (pa.list_(pa.time64("us")), False),
        (pa.struct([("x", pa.struct([("y", pa.duration("ms"))]))]), False),
    ],
    ids=str,
)
def test_a_type_that_no_script_has_is_not_to_be_written_into_it(
    files: Files, of: pa.DataType, declarable: bool
) -> None:
    path = files.write("a.parquet", "")
    pq.write_table(pa.table({"id": pa.nulls(1, of)}), path)
    files.touch("a.parquet", LONG_AGO)
    bench = files.bench(format="parquet")
    bench.plan()
    with pytest.raises(SourceError, match=r"has column id as .*, the script as INT") as refused:
        bench.source().read(None, bench.steps[0])  # type: ignore[arg-type]
    advice = str(refused.value.next_command)
    assert ("write the file's type into the script" in advice) == declarable
    assert ("put the right file there" in advice) != declarable


def test_changes_of_a_build_and_of_a_probe(spark, files: Files) -> None:
    changes = [
        '{"op": "c", "after": {"id": 1, "v": "a"}, "source": {"ts_ms": 5000}}',
        '{"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 1, "v": "b"}}',
        '{"op": "d", "before": {"id": 1, "v": "b"}}',
    ]
    files.write("a.json", "\n".join(changes))
    by_role = {}
    for role in ("build", "probe"):
        bench = files.bench(role, {"id": "INT", "v": "STRING"}, format="debezium-json")
        bench.plan()
        rows = read(spark, bench)
        by_role[role] = [(row["_op"], row["id"], row["v"]) for row in rows]
        assert [row["_rowtime"] for row in rows[:2]] == [at(5), at(LONG_AGO + 1)]
    assert by_role["build"] == [("c", 1, "a"), ("u", 1, "b"), ("d", 1, "b")]
    assert by_role["probe"] == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]


def test_metadata_of_the_format_beside_that_of_the_file(spark, files: Files) -> None:
    columns = (
        "id INT, n STRING METADATA FROM 'file.name', `table` STRING METADATA, pk ARRAY<STRING> METADATA FROM 'pk-names'"
    )
    script = f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'canal-json')"
    files.write("a.json", [{"type": "INSERT", "data": [{"id": "1"}], "table": "users", "pkNames": ["id"]}])
    bench = files.bench(format="canal-json")
    bench.table = replace(bench.table, columns=compile_script(script).table("t").columns)
    bench.plan()
    (row,) = read(spark, bench)
    assert (row["id"], row["n"], row["table"], row["pk"]) == (1, "a.json", "users", ["id"])


def test_a_line_that_does_not_fit_fails_the_step(spark, files: Files) -> None:
    path = files.write("a é.json", '{"id": 1}\n{"id": "one"}\n')
    bench = files.bench()
    bench.plan()
    assert bench.failure(spark).what == f"t: {path}, the line at byte 10: column id: 'one' does not fit INT"
    bench = files.bench(**{"json_ignore-parse-errors": "true"})
    bench.plan()
    assert [row["id"] for row in read(spark, bench)] == [1, None]


FIT_AND_MISFIT = {
    "json": ('{"id": 1}', '{"id": "one"}', "column id: 'one' does not fit INT"),
    "csv": ("1", "one", "column id: 'one' does not fit INT"),
    "debezium-json": ('{"op": "c", "after": {"id": 1}}', '{"op": "d"}', "the message has no before"),
    "canal-json": (
        '{"type": "INSERT", "data": [{"id": "1"}]}',
        '{"type": "INSERT", "data": [{"id": "1"}, {"id": "x"}]}',
        "column id: 'x' does not fit INT",
    ),
    "changelog-json": ('{"op": "+I", "data": {"id": 1}}', "\xff", "the message is no UTF-8 text"),
}


@pytest.mark.parametrize("kind", FIT_AND_MISFIT)
def test_a_line_that_does_not_fit_is_set_apart_with_its_file_and_byte(spark, files: Files, kind: str) -> None:
    good, bad, words = FIT_AND_MISFIT[kind]
    lines_of = [good.encode(), bad.encode("latin-1"), b"", good.encode()]
    path = files.write("a é.txt", b"\r\n".join(lines_of))
    bench = files.bench(**{"format": kind, "format_on-error": "quarantine"})
    bench.plan()
    frame = bench.source().read(spark, bench.steps[0])
    rejected = StructType.fromDDL(f"{REJECTED} {REJECTED_TYPE}")[REJECTED].dataType
    assert frame.schema[REJECTED].dataType.simpleString() == rejected.simpleString()
    fine, wrong, last = sorted(frame.collect(), key=lambda row: row["_offset"])
    assert [(row["id"], row["_op"], row[REJECTED]) for row in (fine, last)] == [(1, "+I", None)] * 2
    broken = wrong[REJECTED]
    assert broken["reason"].startswith(f"{path}, the line at byte {len(good) + 2}: {words}")
    assert (broken["value"], broken["key"], broken["headers"]) == (lines_of[1], None, None)
    assert (wrong["_split"], wrong["_offset"], wrong["_rowtime"]) == ("0", len(good) + 2, at(LONG_AGO + 1))


def test_a_file_that_changes_while_it_is_read(spark, files: Files) -> None:
    files.write("a.json", [{"id": 1}])
    bench = files.bench()
    bench.plan()
    explained = bench.failure(spark, between=lambda: files.touch("a.json", 5))
    assert explained.what == "t: the file a.json changed, or was taken away, while it was read"


def test_a_step_without_files_has_no_rows(spark, files: Files) -> None:
    for kind in ("json", "parquet"):
        bench = files.bench(format=kind)
        bench.plan()
        assert read(spark, bench) == []
