"""What the annotations of a function mean in SQL, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines.functions import FunctionProblem, UserFunction, read, used_in

SAMPLES = "tests.pipelines.functions.samples"


def sample(name: str) -> UserFunction:
    return read(name, f"{SAMPLES}.{name}")


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        (
            "watermark_on_flag",
            "watermark_on_flag(rowtime BIGINT, is_end_of_sequence BOOLEAN) -> BIGINT",
        ),
        ("watermark_on_moment", "watermark_on_moment(log_ts TIMESTAMP(6), flag BOOLEAN) -> TIMESTAMP(6)"),
        ("parsed", "parsed(text STRING, [default BIGINT]) -> BIGINT NOT NULL"),
        ("inverse", "inverse(number DOUBLE) -> DOUBLE NOT NULL"),
        ("never_mind", "never_mind(text STRING, [other STRING]) -> STRING NOT NULL"),
        ("doubled", "doubled(price DECIMAL(38, 18)) -> DECIMAL(38, 18) NOT NULL"),
        ("day_before", "day_before(day DATE) -> DATE NOT NULL"),
        ("reversed_bytes", "reversed_bytes(octets BYTES) -> BYTES NOT NULL"),
        ("cached", "cached(text STRING) -> BIGINT NOT NULL"),
        ("answer", "answer() -> BIGINT NOT NULL"),
        ("plus_one", "plus_one(number BIGINT) -> BIGINT NOT NULL"),
    ],
)
def test_annotations_are_sql_types(name: str, signature: str) -> None:
    assert sample(name).signature == signature


def test_optional_parameters_take_null() -> None:
    assert [parameter.takes_null for parameter in sample("watermark_on_moment").parameters] == [False, True]
    assert [parameter.takes_null for parameter in sample("never_mind").parameters] == [True, True]


@pytest.mark.parametrize(
    ("reference", "what", "hint"),
    [
        ("inverse", "'inverse' does not name a function", "module.function"),
        ("a b.c", "'a b.c' does not name a function", "module.function"),
        ("", "'' does not name a function", "module.function"),
        ("no_such_module_here.f", "there is no module `no_such_module_here`", "PYTHONPATH"),
        ("tests.pipelines.functions.nowhere.f", "there is no module `tests.pipelines.functions.nowhere`", "PYTHONPATH"),
        ("tests.pipelines.functions.broken.f", "cannot be imported: RuntimeError: no database", "import tests."),
        ("tests.pipelines.functions.needs_more.f", "No module named 'no_such_package_anywhere'", "PYTHONPATH"),
        (f"{SAMPLES}.invers", "has no function `invers`", f"did you mean `{SAMPLES}.inverse`?"),
        (f"{SAMPLES}.qqqq", "has no function `qqqq`", "define `qqqq` at the top level"),
        (f"{SAMPLES}.NUMBER", "is no function, it is an int", "name a function"),
        (f"{SAMPLES}.Kind", "is a class, not a function", "top level"),
        (f"{SAMPLES}.later", "gives no value when it is called", "return"),
        (f"{SAMPLES}.several", "gives no value when it is called", "return"),
        (f"{SAMPLES}.no_annotation", "parameter `number` of", "annotate it: `number: int`"),
        (f"{SAMPLES}.no_result", "does not say what it returns", "-> int"),
        (f"{SAMPLES}.any_number", "takes any number of arguments (`*numbers: 'int'`)", "name each parameter"),
        (f"{SAMPLES}.by_name", "can only be given by name", "by position"),
        (f"{SAMPLES}.of_a_list", "is annotated `list[int]`, which has no type in SQL", "known are int, float"),
        (f"{SAMPLES}.gives_nothing", "what `tests.pipelines.functions.samples.gives_nothing` returns", "known are"),
        (f"{SAMPLES}.one_of_two", "is annotated `int | str`", "known are"),
        (f"{SAMPLES}.unknown_word", "cannot be resolved: name 'Nowhere' is not defined", "import what it names"),
        ("math.sqrt", "parameter `x` of `math.sqrt` has no annotation", "annotate it"),
        ("builtins.max", "`builtins.max` has no signature", "wrap it"),
    ],
)
def test_what_has_no_signature_is_refused_with_a_hint(reference: str, what: str, hint: str) -> None:
    with pytest.raises(FunctionProblem) as caught:
        read("f", reference)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert "\n" not in caught.value.what


def test_a_function_is_called_by_a_name_of_its_own_in_spark() -> None:
    one, other = sample("inverse"), read("flip", f"{SAMPLES}.inverse")
    assert one.spark_name == sample("inverse").spark_name
    assert one.spark_name != other.spark_name
    assert used_in([one, other], f"1 + {one.spark_name}(x)", None) == (one,)
    assert used_in([one, other], "inverse(x)") == ()


def test_what_a_module_prints_while_it_is_imported_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talkative.py").write_text("print('hello')\ndef f(a: int) -> int:\n    return a\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read("f", "talkative.f").type == "BIGINT"
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "hello\n")
