"""One table with every column type, and rows that go to the limits of each."""

from __future__ import annotations

from tests.conftest import Database

TABLE = "everything"

_SPATIAL = {
    "geometry": "'POINT(1.5 -2)'",
    "point": "'POINT(0 0)'",
    "linestring": "'LINESTRING(0 0,1 1)'",
    "polygon": "'POLYGON((0 0,1 0,1 1,0 0))'",
    "multipoint": "'MULTIPOINT(1 1,2 2)'",
    "multilinestring": "'MULTILINESTRING((0 0,1 1))'",
    "multipolygon": "'MULTIPOLYGON(((0 0,1 0,1 1,0 0)))'",
    "geometrycollection": "'GEOMETRYCOLLECTION(POINT(1 1))'",
}

COLUMNS: dict[str, tuple[str, ...]] = {
    "tinyint": ("-128", "127", "0"),
    "tinyint unsigned": ("0", "255", "7"),
    "boolean": ("TRUE", "FALSE", "2"),
    "smallint": ("-32768", "32767", "0"),
    "smallint unsigned": ("0", "65535", "1"),
    "mediumint": ("-8388608", "8388607", "-1"),
    "mediumint unsigned": ("0", "16777215", "1"),
    "int": ("-2147483648", "2147483647", "-1"),
    "int unsigned": ("0", "4294967295", "1"),
    "int(8) unsigned zerofill": ("42", "0", "123456789"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "-1"),
    "bigint unsigned": ("0", "18446744073709551615", "9223372036854775808"),
    "float": ("1.1e0", "-3.4028234e38", "1.17549435e-38"),
    "float unsigned": ("0.1e0", "16777217e0", "1e-45"),
    "float(7,3)": ("1234.567", "-0.001", "0"),
    "double": ("0.1e0", "-1.7976931348623157e308", "4.9406564584124654e-324"),
    "double(12,4)": ("12345678.1234", "-0.0001", "0"),
    "decimal(1,0)": ("-9", "9", "0"),
    "decimal(5,2) unsigned": ("999.99", "0.01", "0"),
    "decimal(18,9)": ("-999999999.999999999", "0.000000001", "123.4"),
    "decimal(19,0)": ("9999999999999999999", "-9999999999999999999", "1"),
    "decimal(20,20)": ("0.99999999999999999999", "-0.00000000000000000001", "0"),
    "decimal(38,10)": ("-9999999999999999999999999999.9999999999", "1", "0.0000000001"),
    "decimal(38,38)": ("0.12345678901234567890123456789012345678", "-0.1", "0"),
    "decimal(39,0)": ("-123456789012345678901234567890123456789", "0", "10"),
    "decimal(65,30)": (
        "99999999999999999999999999999999999.999999999999999999999999999999",
        "-0.000000000000000000000000000001",
        "0",
    ),
    "decimal(50,3) zerofill": ("12.5", "0.001", "99999999999999999999999999999999999999999999999.999"),
    "bit(1)": ("b'0'", "b'1'", "b'0'"),
    "bit(5)": ("b'10101'", "b'0'", "b'11111'"),
    "bit(64)": ("b'1'", "0xFFFFFFFFFFFFFFFF", "0x8000000000000000"),
    "year": ("1901", "2155", "0"),
    "date": ("'1970-01-01'", "'9999-12-31'", "'0000-00-00'"),
    "date ": ("'0001-01-01'", "'2024-02-29'", "'2024-05-00'"),
    "datetime": ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'"),
    "datetime(1)": ("'2024-02-29 23:59:59.9'", "'1969-12-31 23:59:59.1'", "'2024-00-10 10:00:00'"),
    "datetime(3)": ("'1582-10-04 12:34:56.789'", "'1582-10-15 00:00:00.001'", "'0001-01-01 00:00:00'"),
    "datetime(6)": ("'2024-12-31 23:59:59.999999'", "'1900-03-01 00:00:00.000001'", "'0000-01-01 00:00:00'"),
    "timestamp": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"),
    "timestamp(2)": ("'2024-03-31 01:30:00.12'", "'2024-10-27 02:30:00.99'", "'2001-09-09 01:46:40'"),
    "timestamp(6)": ("'1999-12-31 23:59:59.999999'", "'2024-06-15 12:00:00.000001'", "'0000-00-00 00:00:00'"),
    "time": ("'00:00:00'", "'838:59:59'", "'-838:59:59'"),
    "time(2)": ("'-00:00:00.01'", "'23:59:59.99'", "'100:00:00'"),
    "time(4)": ("'-99:59:59.9999'", "'00:00:00.0001'", "'12:00:00'"),
    "time(6)": ("'838:59:58.999999'", "'-838:59:58.999999'", "'00:00:00.000001'"),
    "char(10)": ("''", "'trailing  '", "'😀 emoji'"),
    "char(0)": ("''", "''", "''"),
    "char(200) character set utf8mb4": ("REPEAT('ü',200)", "' '", "'a'"),
    "varchar(20)": ("''", "'  both  '", "'línea\\n\\t\\'\"'"),
    "varchar(300) character set latin1": ("'café €'", "CONVERT(0x818D8F909D USING latin1)", "''"),
    "varchar(255) character set ascii": ("'plain'", "''", "'~'"),
    "varchar(20) character set utf8mb3": ("'žluťoučký'", "''", "'ﬃ'"),
    "varchar(20) character set cp1251": ("'Привет'", "''", "'abc'"),
    "varchar(20) character set greek": ("'Ελλάδα'", "''", "'abc'"),
    "varchar(20) character set ucs2": ("'Ω≈ç'", "''", "'a'"),
    "varchar(20) character set utf16": ("'a😀b'", "''", "'ü'"),
    "varchar(20) character set utf16le": ("'a😀b'", "''", "'ü'"),
    "varchar(20) character set utf32": ("'a😀b'", "''", "'ü'"),
    "varchar(20) character set gbk": ("'中文字'", "''", "'abc'"),
    "varchar(20) character set cp932": ("'日本語'", "''", "'ｱｲｳ'"),
    "varchar(20) character set euckr": ("'한국어'", "''", "'abc'"),
    "tinytext": ("'tiny'", "''", "'😀'"),
    "text character set latin1": ("'Grüße'", "''", "REPEAT('ÿ',1000)"),
    "mediumtext": ("REPEAT('m',70000)", "''", "'m'"),
    "longtext": ("'long'", "''", "'😀😀'"),
    "json": ('\'{"a": [1, 2.50, "ü"]}\'', "'[]'", "'null'"),
    "binary(5)": ("'ab'", "0x0000000000", "0x0102030405"),
    "binary(0)": ("''", "''", "''"),
    "varbinary(300)": ("0x00FF00", "''", "REPEAT(0x00,300)"),
    "tinyblob": ("0x00", "''", "0xFF"),
    "blob": ("0x0001", "''", "REPEAT(0x00FF,400)"),
    "mediumblob": ("REPEAT(0xAB,70000)", "''", "0x01"),
    "longblob": ("0x01", "''", "0x00"),
    "enum('a','é','with,comma','')": ("'a'", "'é'", "''"),
    "enum('x','ß') character set latin1": ("'x'", "'ß'", "'x'"),
    "set('p','q','ü','s')": ("''", "'p,ü'", "'p,q,ü,s'"),
    f"set({','.join(repr(f'm{i}') for i in range(64))})": ("'m0'", "'m63'", "'m0,m31,m63'"),
    "inet4": ("'0.0.0.0'", "'255.255.255.255'", "'10.0.0.1'"),
    "inet6": ("'::'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'"),
    "inet6 ": ("'::1'", "'1:0:0:2::'", "'::1.2.3.4'"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", "'123e4567-e89b-12d3-a456-426655440000'", "UUID()"),
    **{kind: (f"ST_GeomFromText({text})", f"ST_GeomFromText({text}, 4326)", "NULL") for kind, text in _SPATIAL.items()},
    "varchar(2000) compressed": ("REPEAT('c',500)", "'short'", "''"),
    "text compressed character set latin1": ("REPEAT('ä',300)", "''", "'short'"),
    "blob compressed": ("REPEAT(0x00,300)", "''", "0x01"),
}
"""Column type -> its values in the first three rows, as SQL. A blank at a type's end makes a second column of it."""

NAMES = [f"c{number}" for number in range(len(COLUMNS))]


def create(database: Database) -> None:
    """Make the table, empty."""
    columns = ", ".join(f"{name} {kind} NULL" for name, kind in zip(NAMES, COLUMNS, strict=True))
    database.execute(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")


def fill(database: Database) -> None:
    """Insert the rows, and one of NULLs only. Zero dates need a lenient session."""
    rows = [
        f"INSERT INTO {TABLE} VALUES ({number}, {', '.join(values[number] for values in COLUMNS.values())})"
        for number in range(3)
    ]
    nulls = f"INSERT INTO {TABLE} (id) VALUES (3)"
    database.execute("SET SESSION sql_mode = '', time_zone = '+00:00'", *rows, nulls)
