"""The three nodes of an INSERT: staged, checked, published. Each is one call of the runner."""

# No `from __future__ import annotations` here: Dagster reads the annotations of its functions as types.

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import dagster as dg

from tidegate.assets.checks import adds_up, adds_up_specs, check_specs, evaluation, results, worse
from tidegate.assets.failures import never_again
from tidegate.assets.names import BACKFILL_TAG, GATE
from tidegate.assets.presentation import OnLake
from tidegate.assets.specs import published_spec, staged_spec
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.sql.model import Insert

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs.position import Position, Waiting
    from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published
    from tidegate.pipelines.runtime.runner import Runner


class StageConfig(dg.Config):
    """What a person may decide in the launchpad about an epoch that the gate holds.

    Attributes:
        held: `release` joins its rows again, against what the build tables hold by then, and asks the gate again;
            `discard` quarantines all of them, also those that nothing is wrong with; empty leaves it held. Fails where
            no epoch is held.
        on_unmatched: What becomes of rows without a match this once, with `held: release`; as the script says when
            empty.
    """

    held: Literal["", "release", "discard"] = ""
    on_unmatched: Literal["", "quarantine", "block", "publish"] = ""


def staged_asset(on: OnLake, insert: Insert) -> dg.AssetsDefinition:
    """Plans the next epoch (or takes up the unfinished one) and stages it.

    Waiting for a build to flip, and an epoch that is still held, are shown in the metadata: neither is this asset's
    failure. A held epoch fails the gate's check, again, until the config says what becomes of it.
    """
    spec, commands = staged_spec(on, insert), on.commands

    @dg.multi_asset(specs=[spec], **on.step(on.names.op(spec.key), spec.description, insert.id))
    @on.executed("staged")
    def stage(context: dg.AssetExecutionContext, config: StageConfig) -> Iterator[dg.MaterializeResult]:
        from tidegate.assets.metadata import of_held, of_staged, of_waiting
        from tidegate.pipelines.runtime.epochs.position import Waiting

        with on.runner(context) as runner:
            releasing = runner.releasing(insert.id)
            _decide(releasing, config, context.log)
            position = releasing.position()
            if held := position.held:
                waiting = releasing.waiting(position)
                yield dg.MaterializeResult(asset_key=spec.key, metadata=of_held(insert, held, waiting, commands))
                return
            staged = runner.stage(insert.id)
            metadata = of_waiting(releasing, staged) if isinstance(staged, Waiting) else of_staged(releasing, *staged)
            if not isinstance(staged, Waiting):
                runner.hand_on(insert.id)
            yield dg.MaterializeResult(asset_key=spec.key, metadata=metadata)

    return stage


def _decide(releasing: "InsertRunner", config: StageConfig, log: dg.DagsterLogManager) -> None:
    """Plan the epoch that replaces the held one, if the config asks for it, and log what that does. A step that is
    tried again finds that plan. Raises PlanningError where no epoch is held."""
    if config.on_unmatched and config.held != "release":
        raise PlanningError(
            "`on_unmatched` is for an epoch that is released again",
            where=f"the config of the staged asset of {releasing.insert.id}",
            state="nothing was changed",
            next_command="set `held: release` beside it, or leave it out",
        )
    if not config.held:
        return
    kind: Literal["discard", "re-release"] = "discard" if config.held == "discard" else "re-release"
    position = releasing.position()
    if position.unfinished is not None and position.unfinished.kind == kind and position.state != "held":
        return
    plan, held = releasing.supersede(kind, config.on_unmatched or None), position.held
    said = held and (held.given_up if plan.discards else held.unchanged_in(plan))
    if said:
        log.warning(said)


def gate_checks(on: OnLake, insert: Insert) -> dg.AssetChecksDefinition:
    """The gate on the staged epoch: four blocking checks, of one verdict. Where it holds the epoch its step fails with
    the reasons: Dagster's own failure names the checks alone."""
    specs, commands = check_specs(on.names.staged(insert)), on.commands
    name = on.names.op(on.names.staged(insert), "__checks")

    @dg.multi_asset_check(specs=specs, can_subset=True, **on.step(name, None, insert.id))
    @on.executed("gate")
    def judge(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from tidegate.pipelines.runtime.epochs.position import gate_held

        with on.runner(context) as runner:
            verdict = runner.judge(insert.id)
            if verdict is not None and verdict.passed:
                runner.hand_on(insert.id)
            asked = [spec for spec in specs if spec.key in context.selected_asset_check_keys]
            position = runner.releasing(insert.id).position()
            yield from results(asked, verdict, position.state, commands)
            if verdict is not None and not verdict.passed:
                if position.plan:
                    raise gate_held(insert, position.plan, position.verdict)
                never_again(context)

    return judge


def published_asset(on: OnLake, insert: Insert) -> dg.AssetsDefinition:
    """Adds the staged epoch to quarantine and target. It re-reads the stored verdict and fails without a good one.

    Where it has added nothing because landed rows wait, that is an observation, which names what they wait for, and no
    materialisation, unless another asset of the run reads it or the run is of a backfill.

    Then it goes on with the next epochs of its INSERT, each staged, judged and published, until what had landed when it
    began is through; one that the gate holds fails it. Whatever it added, it counts whether all rows are in their
    places."""
    spec, commands = published_spec(on, insert), on.commands

    @dg.multi_asset(
        specs=[spec.replace_attributes(skippable=True)],
        check_specs=adds_up_specs(insert, spec.key),
        can_subset=True,
        **on.step(on.names.op(spec.key), spec.description, insert.id),
    )
    @on.executed("published")
    def publish(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        with on.runner(context) as runner:
            if spec.key in context.selected_asset_keys:
                yield from materialized(context, runner)
            if context.selected_asset_check_keys:
                yield from adds_up(runner.lake, on.pipeline, insert, spec.key, commands)

    def materialized(context: dg.AssetExecutionContext, runner: "Runner") -> Iterator[dg.MaterializeResult]:
        from tidegate.assets.metadata import of_published, of_waiting

        releasing, done = runner.releasing(insert.id), []
        before = releasing.position()
        if before.staged is not None and before.verdict is None:
            _require_gate(context, on.names.staged(insert))
        try:
            for epoch in _published(context, runner, insert, on.names.staged(insert), before, commands):
                done.append(epoch)
        except TidegateError:
            if done:  # what it has published is materialised, before it fails
                yield dg.MaterializeResult(asset_key=spec.key, metadata=of_published(releasing, before, done))
            raise
        waiting = _waiting(releasing, before) if before.unfinished is None else None
        if waiting is not None:
            found = of_waiting(releasing, waiting)
            context.log_event(dg.AssetObservation(spec.key, found["summary"], metadata=found))
        if waiting is None or _is_expected(context, spec.key):
            yield dg.MaterializeResult(asset_key=spec.key, metadata=of_published(releasing, before, done))

    return publish


def _waiting(releasing: "InsertRunner", before: "Position") -> "Waiting | None":
    """What the landed rows of an INSERT wait for, if its newest epoch is published; None if none waits, or a run that
    stages would release some."""
    from tidegate.pipelines.runtime.epochs.position import Waiting

    found = releasing.planner.next(before.plan) if releasing.waiting(before) else None
    return found if isinstance(found, Waiting) and found.rows else None


def _is_expected(context: dg.AssetExecutionContext, key: dg.AssetKey) -> bool:
    """Whether Dagster needs the asset materialised: another asset of the run depends on it, whose step would be
    skipped, or the run is of a backfill, which would be shown as failed."""
    if BACKFILL_TAG in context.run.tags:
        return True
    run = context.job_def.asset_layer
    return any(key in run.asset_graph.get(other).parent_keys for other in run.executable_asset_keys)


def _require_gate(context: dg.AssetExecutionContext, staged: dg.AssetKey) -> None:
    """Raises PlanningError in a run that stages an epoch and is to publish it without its gate."""
    run, name = context.job_def.asset_layer, staged.to_user_string()
    judged = {check.asset_key for check in run.asset_graph.asset_check_keys if check.name in GATE}
    if staged in run.executable_asset_keys and staged not in judged:
        raise PlanningError(
            f"the run stages {name} and leaves out its checks, so nobody has judged what it would publish",
            where="the selection of the run",
            state="the epoch is staged; the target is unchanged",
            next_command=f"select the checks {', '.join(f'{name}:{check}' for check in GATE)} as well, or start {name} "
            "with its checks",
        )


def _published(
    context: dg.AssetExecutionContext,
    runner: "Runner",
    insert: Insert,
    staged: dg.AssetKey,
    before: "Position",
    commands: Commands,
) -> Iterator["Published"]:
    """The epochs that a step publishes, one after another; `before` is where it begins. The checks of the staged asset
    show the worst verdict of all: the first one as their own step has shown it, a worse one in its place."""
    releasing = runner.releasing(insert.id)
    specs = check_specs(staged)
    end = None if before.unfinished is None else releasing.end()
    first = runner.publish(insert.id)
    if first is not None:
        yield first
    if first is None or end is None or end.reached(first.plan):
        return
    ranks = dict[str, int]()

    def judged(verdict: GateVerdict) -> None:
        for result in worse(results(specs, verdict, releasing.position().state, commands), ranks):
            context.log_event(evaluation(result))  # type: ignore[arg-type] it takes them, and does not say so

    if before.verdict is not None:
        passed = results(specs, GateVerdict.of(before.verdict), "published", commands)
        list(worse(passed, ranks))
    yield from runner.epochs(insert.id, end, judged)
