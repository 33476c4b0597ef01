from io import StringIO

import pytest
from rich.console import Console

from tests.pipelines.sources.sources_help import NoSplits, table
from tidegate.pipelines.connectors.protocol import SourceContext
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sinks.print import CONNECTOR, show_epoch


def shown(rows, *args) -> tuple[int, list[str]]:
    screen = StringIO()
    count = show_epoch(rows, *args, console=Console(file=screen, width=40))
    return count, screen.getvalue().splitlines()


def test_rows_are_shown_as_flink_shows_them(spark):
    rows = spark.sql("""
        SELECT * FROM VALUES
            ('+I', 3L, 1, '[red]f[/red]', 1.50, TIMESTAMP_NTZ '2026-01-02 00:00:00'),
            ('-D', 3L, NULL, 'm', NULL, NULL)
        AS t(_op, _epoch, `user id`, gender, price, at)
    """)
    assert shown(rows, "clicks") == (
        2,
        ["clicks> +I[1, [red]f[/red], 1.50, 2026-01-02 00:00:00]", "clicks> -D[NULL, m, NULL, NULL]"],
    )
    assert shown(rows.select("gender")) == (2, ["+I[[red]f[/red]]", "+I[m]"])


def test_a_large_epoch_is_cut_short_and_says_so(spark):
    count, lines = shown(spark.range(1000), "", 2)
    assert count == 2
    assert lines == ["+I[0]", "+I[1]", "… and more: 2 rows of this epoch shown, all in the table"]


def test_an_epoch_of_just_the_limit_is_not_cut(spark):
    assert shown(spark.range(2), "p", 2) == (2, ["p> +I[0]", "p> +I[1]"])


def test_it_is_no_source():
    assert CONNECTOR.spec.sink
    assert not CONNECTOR.spec.source
    with pytest.raises(PlanningError, match="t cannot be read"):
        CONNECTOR.source(SourceContext(table({}, "print"), {}, 1, NoSplits(), "", lambda: 0))
