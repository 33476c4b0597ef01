"""Source tables of an alignment group as Dagster runs them: one step, in turns; each alone if it is chosen so."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.assets.test_run import metadata_of
from tests.pipelines.runtime import tape
from tidegate.assets import build_pipeline_definitions
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.sql import compile_script

TABLE = """
CREATE TABLE {name} (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH ('connector' = 'tape',
    'scan.max-rows-per-epoch' = '20'{options});
CREATE TABLE kept_{name} (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT n FROM {name};
"""
ALIGNED = ", 'scan.watermark.alignment.group' = '{group}', 'scan.watermark.alignment.max-drift' = '10 ms'"
G = ALIGNED.format(group="g")


@pytest.fixture(autouse=True)
def _connector(monkeypatch: pytest.MonkeyPatch) -> None:
    tape.install(monkeypatch)


def definitions(lake: Path, **options: str) -> dg.Definitions:
    text = "".join(TABLE.format(name=name, options=more) for name, more in options.items())
    return build_pipeline_definitions(replace(compile_script(text), name="p"), lake=lake)


def steps(found: dg.Definitions) -> dict[str, set[str]]:
    """The steps of the source tables: their names, and what each makes."""
    made = {}
    for item in found.assets or []:
        if not isinstance(item, dg.AssetsDefinition):  # what operations record has no step
            continue
        names = {key.path[-1] for key in item.keys}
        if not any(name.endswith("_staged") or name.startswith("kept_") or name == "maintenance" for name in names):
            made[item.op.name] = names
    return made


class Dagster:
    """A code location, its lake and its history."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = Lake(folder), instance
        self.definitions = definitions(folder, one=G, two=G, other="")

    def run(self, *tables: str, **config: Any) -> dict[str, dict[str, Any]]:
        """What the materialisations of the tables tell."""
        found = self.definitions
        result = dg.materialize(
            list(found.assets or []),  # type: ignore[arg-type]
            selection=[dg.AssetKey(["p", name]) for name in tables],
            resources=found.resources,
            instance=self.instance,
            run_config={"ops": {"p__aligned__sources": {"config": config}} if config else {}},
        )
        made = [event.asset_key for event in result.get_asset_materialization_events() if event.asset_key is not None]
        return {key.path[-1]: metadata_of(result, key) for key in made}

    def landed(self) -> dict[str, int]:
        return {name: sum(row.rows for row in self.lake.watermarks.rows(name)) for name in ("one", "two", "other")}


@pytest.fixture
def dagster(tmp_path: Path, spark: SparkSession) -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Dagster(tmp_path, instance)


def rows(count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(count)]


def test_a_run_of_one_table_waits_for_its_group_and_a_run_of_all_comes_to_their_ends(dagster: Dagster) -> None:
    for name in ("one", "two"):
        tape.write(dagster.lake, name, {"0": rows(60)})
    assert set(dagster.run("one")) == {"one"}
    assert dagster.landed() == {"one": 20, "two": 0, "other": 0}
    metadata = dagster.run("one")["one"]
    assert (metadata["rows landed"], metadata["blocked splits"]) == (0, 1)
    assert "two" in metadata["blocked"][0]["waits for"]
    assert "1 split once two" in metadata["summary"]
    assert dagster.run("two", max_epochs=1)["two"]["epochs landed"] == 1
    assert dagster.landed() == {"one": 20, "two": 20, "other": 0}
    metadata = dagster.run("one", "two")
    assert dagster.landed() == {"one": 60, "two": 60, "other": 0}
    assert [metadata[name]["epochs landed"] for name in ("one", "two")] == [2, 2]
    assert [metadata[name]["blocked splits"] for name in ("one", "two")] == [0, 0]
    assert metadata["one"]["watermarks of splits"].startswith("![")
    plans = sorted((row.planned_at, name) for name in ("one", "two") for row in dagster.lake.epochs.rows(name))
    assert [name for _, name in plans] == ["one", "two"] * 3, "an epoch each, none is further ahead than that"
    metadata = dagster.run("one", "two", resnapshot=["one"], max_epochs=1)
    assert metadata["one"]["generation"] == 2
    assert (metadata["one"]["rows landed"], metadata["two"]["rows landed"]) == (20, 0)
    with pytest.raises(dg.Failure) as caught:
        dagster.run("two", resnapshot=["one"])
    assert (
        caught.value.description
        == "one is to be read from a new snapshot, and is not among the tables of this run: two"
    )


def test_tables_that_are_not_aligned_or_alone_in_it_have_steps_of_their_own(tmp_path: Path) -> None:
    other = ALIGNED.format(group="h")
    assert steps(definitions(tmp_path, one="", two="", three=G)) == {
        "p__one": {"one"}, "p__two": {"two"}, "p__three": {"three"}
    }  # fmt: skip
    assert steps(definitions(tmp_path, one=G, two=other, three="", four=G)) == {
        "p__three": {"three"}, "p__aligned__sources": {"one", "two", "four"}
    }  # fmt: skip
