"""Had every build flipped, by its own watermark log, before a row was released against it?"""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.quality_checks.evidence import Evidence
from tidegate.quality_checks.words import join_again, subject

NAME = "released-after-flip"


def check(evidence: Evidence) -> CheckResult:
    """Each build of the INSERT is pinned once, its pinned epoch has landed, and its flip is at or before the pin.

    Holds under every policy: a row that was released before the flip never leaves.
    """
    staged = evidence.staged
    problems: list[str] = []
    pins = {pin.table: pin for pin in staged.plan.pins}
    if len(pins) != len(staged.plan.pins):
        problems.append("a build is pinned twice")
    for build in staged.insert.builds:
        pin, log = pins.get(build), staged.landed.get(build)
        if pin is None:
            problems.append(f"{build} is not pinned")
        elif log is None:
            problems.append(
                f"{build} is pinned at generation {pin.generation}, epoch {pin.epoch}, which has no row in the "
                "watermark log"
            )
        elif (log.owner, log.generation, log.epoch) != (build, pin.generation, pin.epoch):
            problems.append(
                f"{build} is pinned at generation {pin.generation}, epoch {pin.epoch}, the watermark log answers for "
                f"{log.owner}, generation {log.generation}, epoch {log.epoch}"
            )
        elif log.flip_epoch is None or log.flip_epoch > pin.epoch:
            problems.append(f"{build} had not flipped at its pinned epoch {pin.epoch}: its snapshot was still loading")
        elif log.flip_epoch != pin.flip_epoch:
            problems.append(
                f"{build} flipped at epoch {log.flip_epoch} by its watermark log, at {pin.flip_epoch} by the plan"
            )
    problems += [
        f"{table} is pinned, but the INSERT does not join it" for table in pins if table not in staged.insert.builds
    ]
    return CheckResult(
        NAME,
        passed=not problems,
        observed={name: [log.generation, log.epoch, log.flip_epoch] for name, log in sorted(staged.landed.items())},
        expected={name: [pin.generation, pin.epoch, pin.flip_epoch] for name, pin in sorted(pins.items())},
        detail=", ".join(
            f"{pin.table} flipped at epoch {pin.flip_epoch}, pinned at {pin.epoch}" for pin in pins.values()
        )
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Its rows were released too early and are not published. "
        f"Let the build finish loading (tidegate status), then join again: {join_again(staged)}",
    )
