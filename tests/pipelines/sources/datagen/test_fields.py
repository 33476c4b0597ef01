import pytest

from tidegate.pipelines.sources.datagen.fields import field_spec
from tidegate.pipelines.syntax.dialect import parse_type


def spec(flink, **options):
    return field_spec(
        "a", parse_type(flink), {f"fields.a.{name.replace('_', '-')}": value for name, value in options.items()}
    )


@pytest.mark.parametrize(
    ("flink", "low", "high"),
    [
        ("TINYINT", -128, 127),
        ("SMALLINT", -(2**15), 2**15 - 1),
        ("INT", -(2**31), 2**31 - 1),
        ("BIGINT", -(2**63), 2**63 - 1),
        ("DECIMAL(5, 2)", -99999, 99999),
        ("DECIMAL(38, 0)", -(10**38) + 1, 10**38 - 1),
        ("DOUBLE", -1.7976931348623157e308, 1.7976931348623157e308),
    ],
)
def test_random_numbers_span_their_type_unless_told_otherwise(flink, low, high):
    assert (spec(flink).low, spec(flink).high) == (low, high)


def test_bounds_are_read_by_type():
    assert spec("INT", min="-3", max=" 4 ").high == 4
    assert spec("DECIMAL(5, 2)", min="0.05", max="1").low == 5
    assert spec("DECIMAL(5, 2)", min="0.05", max="1").high == 100
    assert spec("DOUBLE", min="0", max="1e3").high == 1000.0


@pytest.mark.parametrize(
    ("flink", "options", "length"),
    [
        ("STRING", {}, 100),
        ("BYTES", {"length": "7"}, 7),
        ("VARCHAR(5)", {}, 5),
        ("VARCHAR(500)", {}, 100),
        ("CHAR(500)", {}, 500),
        ("ARRAY<INT>", {}, 3),
        ("MAP<INT, INT>", {"length": "0"}, 0),
        ("INT", {}, 0),
    ],
)
def test_lengths(flink, options, length):
    assert spec(flink, **options).length == length


def test_a_sequence_lasts_from_start_to_end():
    assert spec("BIGINT", kind="sequence", start="5", end="9").rows == 5
    assert spec("BIGINT").rows is None
    inner = {"fields.a.b.kind": "sequence", "fields.a.b.start": "1", "fields.a.b.end": "3"}
    assert field_spec("a", parse_type("ROW<`b` INT, `c` INT>"), inner).rows == 3


def test_durations_and_rates():
    assert spec("TIMESTAMP(3)", max_past="1 d").max_past_us == 86_400_000_000
    assert spec("INT", null_rate="0.25").null_rate == 0.25


def test_nested_fields_take_options_by_their_path():
    of = parse_type("ROW<`tags` ARRAY<INT>, `m` MAP<STRING, INT>>")
    options = {"fields.a.tags.element.max": "5", "fields.a.m.key.length": "2", "fields.a.tags.length": "4"}
    tags, scores = field_spec("a", of, options).children
    assert (tags.length, tags.children[0].high) == (4, 5)
    assert [child.length for child in scores.children] == [2, 0]


@pytest.mark.parametrize(
    ("flink", "options", "words"),
    [
        ("INT", {"kind": "serial"}, "random or sequence, not 'serial'"),
        ("BOOLEAN", {"kind": "sequence"}, "no sequence of BOOLEAN"),
        ("TIMESTAMP(3)", {"kind": "sequence"}, "no sequence of"),
        ("ARRAY<INT>", {"kind": "sequence"}, "no sequence of"),
        ("INT", {"kind": "sequence", "start": "1"}, "'fields.a.end' is needed"),
        ("INT", {"kind": "sequence", "start": "5", "end": "4"}, "before its start"),
        ("TINYINT", {"kind": "sequence", "start": "0", "end": "128"}, "does not fit into TINYINT"),
        ("DECIMAL(3, 2)", {"kind": "sequence", "start": "0", "end": "10"}, "does not fit into DECIMAL"),
        ("INT", {"kind": "sequence", "start": "a", "end": "4"}, "no whole number: 'a'"),
        ("INT", {"kind": "sequence", "start": "0", "end": "4", "max": "3"}, "'fields.a.max' does not go with sequence"),
        ("INT", {"max": "2147483648"}, "does not fit into INT"),
        ("INT", {"min": "0.5"}, "does not fit into INT"),
        ("INT", {"min": "NaN"}, "no number"),
        ("DECIMAL(5, 2)", {"min": "0.001"}, "does not fit into DECIMAL"),
        ("INT", {"min": "5", "max": "4"}, "greater than its max (5 > 4)"),
        ("DECIMAL(38, 0)", {"min": "-90000000000000000000000000000000000000"}, "38 digits apart"),
        ("STRING", {"min": "5"}, "'fields.a.min' does not go with random STRING"),
        ("INT", {"length": "5"}, "does not go with"),
        ("VARCHAR(5)", {"length": "6"}, "from 0 to 5"),
        ("ARRAY<INT>", {"length": "101"}, "from 0 to 100"),
        ("CHAR(5)", {"var_len": "true"}, "does not go with"),
        ("STRING", {"var_len": "yes"}, "true or false"),
        ("INT", {"null_rate": "1.5"}, "from 0 to 1"),
        ("INT", {"null_rate": "often"}, "no number"),
        ("TIMESTAMP(3)", {"max_past": "long"}, "no duration"),
        ("DATE", {"max_past": "1 d"}, "does not go with"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(flink, options, words):
    with pytest.raises(ValueError, match=r"fields\.a") as error:
        spec(flink, **options)
    assert words in str(error.value)
