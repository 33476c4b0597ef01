"""TABLE_MAP events that MySQL 8.0 and MariaDB 10.5 recorded of the same table (tests/fixtures/binlog/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_map import POST_HEADER_BYTES, MapColumn, lenenc, parse
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.types import Type

FIXTURES = Path(__file__).parents[5] / "fixtures" / "binlog"
RECORDED = {
    name: bytes.fromhex(text) for name, text in json.loads((FIXTURES / "recorded_events.json").read_text()).items()
}

GBK, UTF8MB4, UTF8MB4_BIN, BINARY = 28, 224, 46, 63


def columns(name: str, *, mariadb: bool) -> dict[str, MapColumn]:
    table = parse(RECORDED[name][POST_HEADER_BYTES:], mariadb=mariadb)
    assert str(table) == "test._types"
    return {str(column.name): column for column in table.columns}


@pytest.fixture(params=[("table_map_all_types_mysql_8_0", False), ("table_map_all_types_mariadb_10_5", True)])
def recorded(request: pytest.FixtureRequest) -> dict[str, MapColumn]:
    name, mariadb = request.param
    return columns(name, mariadb=mariadb)


def test_names_and_types(recorded: dict[str, MapColumn]) -> None:
    assert len(recorded) == 51
    assert list(recorded)[:3] == ["b_bit", "n_boolean", "n_tinyint"]
    assert recorded["t_ftime"] == MapColumn(Type.TIME2, b"\x06", "t_ftime")
    assert recorded["n_decimal"].metadata == bytes([65, 30])
    assert recorded["e_enum"].type is Type.ENUM
    assert recorded["g_point"].type is Type.GEOMETRY


def test_signs_are_right_after_a_year_too(recorded: dict[str, MapColumn]) -> None:
    unsigned = {name for name, column in recorded.items() if column.unsigned}
    assert unsigned - {"t_year"} == {name for name in recorded if name.startswith("nu_")}


def test_character_sets_are_right_after_a_geometry_too(recorded: dict[str, MapColumn]) -> None:
    assert recorded["c_char"].collation == GBK
    for name in ("c_varchar", "c_tinytext", "c_text", "c_mediumtext", "c_longtext", "e_enum", "s_set"):
        assert recorded[name].collation == UTF8MB4, name
    for name in ("c_binary", "c_varbinary", "c_tinyblob", "c_blob", "c_mediumblob", "c_longblob"):
        assert recorded[name].collation == BINARY, name
    assert recorded["e_enum2"].collation == recorded["s_set2"].collation == GBK


def test_character_sets_are_right_after_a_vector_too() -> None:
    """Of MySQL 9.7: k INT, em VECTOR(3), and a, b, v VARCHAR(9) in latin1, latin2 and cp1251."""
    body = "0164000174000503f20f0f0f07040900090009001e01010003043f080933040b016b02656d016101620176"
    table = parse(bytes.fromhex(body), mariadb=False)
    found = [(column.name, column.type, column.collation) for column in table.columns]
    assert found[:2] == [("k", Type.LONG, None), ("em", Type.VECTOR, BINARY)]
    assert [(name, collation) for name, _, collation in found[2:]] == [("a", 8), ("b", 9), ("v", 51)]


def test_members_of_enums_and_sets(recorded: dict[str, MapColumn]) -> None:
    assert recorded["e_enum"].members == (b"a", b"b")
    assert recorded["e_enum2"].members == (b"c", b"d")
    assert recorded["s_set"].members == (b"1", b"2")
    assert recorded["s_set2"].members == (b"3", b"4")


def test_json_is_a_type_of_mysql_and_text_of_mariadb() -> None:
    assert columns("table_map_all_types_mysql_8_0", mariadb=False)["j_json"].type is Type.JSON
    text = columns("table_map_all_types_mariadb_10_5", mariadb=True)["j_json"]
    assert (text.type, text.collation) == (Type.BLOB, UTF8MB4_BIN)


def test_lengths_of_strings(recorded: dict[str, MapColumn]) -> None:
    assert recorded["c_char"].max_bytes == 255 * 2
    assert recorded["c_varchar"].max_bytes == 255 * 4
    assert recorded["c_binary"].max_bytes == 64


def test_without_optional_metadata_a_column_has_no_name() -> None:
    body = RECORDED["partitioned_8_0_16_table_map"][POST_HEADER_BYTES:]
    assert parse(body).columns == (MapColumn(Type.LONG, b"", None, False),)


def test_a_column_type_of_unknown_length_is_an_error() -> None:
    with pytest.raises(UnsupportedEvent, match=r"column 2 of d\.t has the type code 200"):
        parse(b"\x01d\x00\x01t\x00\x02\x03\xc8\x00\x01", "binlog.000001:4")


@pytest.mark.parametrize("size", [2, 5, 9, 40, 200])
def test_a_table_map_cut_short_is_an_error(size: int) -> None:
    body = RECORDED["table_map_all_types_mysql_8_0"][POST_HEADER_BYTES : POST_HEADER_BYTES + size]
    with pytest.raises(MalformedEvent):
        parse(body, "binlog.000001:4")


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"\xfa", (250, 1)), (b"\xfc\x01\x02", (513, 3)), (b"\xfd\x01\x00\x01", (65537, 4))]
)
def test_length_encoded_integers(raw: bytes, expected: tuple[int, int]) -> None:
    assert lenenc(raw, 0) == expected
