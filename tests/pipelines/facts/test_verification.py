"""What `verify` says of INSERTs that it recomputes, and of those that it cannot."""

from __future__ import annotations

from tidegate.pipelines.facts.verification import Verification
from tidegate.pipelines.runtime.verifying.verify import EpochReport, EpochState, VerifyReport


def report(insert: str, *states: EpochState) -> VerifyReport:
    return VerifyReport(insert, tuple(EpochReport(1, number, 5, state) for number, state in enumerate(states, 1)))


def said(found: Verification) -> list[str]:
    return [note.text for note in found.notes]


def test_what_keeps_state_is_named_and_no_insert_is_called_proved_of_which_an_epoch_is_not() -> None:
    joined, older, idle = report("joined", "equal"), report("older", "equal", "beyond retention"), report("idle")
    assert said(Verification((joined,))) == ["joined: 5 released rows in 1 epoch recomputed, no row differs"]
    assert said(Verification((joined, older, idle), ("hourly",))) == [
        "joined: 5 released rows in 1 epoch recomputed, no row differs",
        "older: 5 released rows in 1 epoch recomputed, no row differs, 1 epoch cannot be recomputed",
        "idle: nothing is published yet",
        "hourly: not recomputed: windows and processes keep state from epoch to epoch",
        "So 1 of 3 INSERTs is proved by recomputing.",
    ]
    assert said(Verification((joined, older), ("hourly",)))[-1] == "So 1 of 3 INSERTs is proved by recomputing."
    assert said(Verification((older,), ("hourly",)))[-1] == "So 0 of 2 INSERTs are proved by recomputing."
    assert "So " not in " ".join(said(Verification((report("wrong", "different"), joined), ("hourly",))))
