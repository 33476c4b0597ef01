"""Options that say where the last table begins, and what is wrong with them. What they do: ../kafka/test_hybrid.py."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sql import SqlError, compile_script

KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json'"
SCRIPT = """
CREATE TABLE history (id INT, at TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
CREATE TABLE live (id INT, at TIMESTAMP(3)) WITH ({live});
CREATE TABLE t (id INT, at TIMESTAMP(3){watermark}) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live', {options});
"""


@pytest.mark.parametrize(
    ("options", "live", "watermark", "words"),
    [
        ("'hybrid.switch' = 'rowtime'", KAFKA, "s", "needs WATERMARK FOR a column of t"),
        (
            "'hybrid.switch' = 'rowtime'",
            "'connector' = 'datagen'",
            "at",
            "live is a datagen table, which cannot begin",
        ),
        (
            "'hybrid.switch' = 'rowtime'",
            f"{KAFKA}, 'scan.startup.mode' = 'latest-offset'",
            "at",
            "live begins there, and its 'scan.startup.mode' says otherwise",
        ),
        ("'hybrid.switch.overlap' = '1 s'", KAFKA, "at", "is for 'hybrid.switch' = 'rowtime'"),
    ],
)
def test_it_is_refused(options: str, live: str, watermark: str, words: str) -> None:
    own = ", s AS SYSTEM_ROWTIME(), WATERMARK FOR s AS SYSTEM_WATERMARK()"
    watermark = own if watermark == "s" else f", WATERMARK FOR {watermark} AS {watermark}"
    script = SCRIPT.format(options=options, live=live, watermark=watermark)
    with pytest.raises(SqlError) as caught:
        compile_script(script)
    assert words in caught.value.what
    assert "'hybrid.switch" in script.splitlines()[caught.value.line - 1][caught.value.column - 1 :]


def test_it_compiles() -> None:
    options = "'hybrid.switch' = 'rowtime', 'hybrid.switch.overlap' = '5 min'"
    script = SCRIPT.format(options=options, live=KAFKA, watermark=", WATERMARK FOR at AS at")
    assert compile_script(script).table("t").options["hybrid.switch"] == "rowtime"
