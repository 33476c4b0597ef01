"""One look at the lakes and at their sources: the incidents there are now. Sources are asked in threads, so that one
that never answers delays nobody.

A sensor's tick that takes longer than Dagster waits is lost with all that it has sent, and sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NoReturn, TypeVar, cast

import dagster as dg

from tidegate.assets.watched import Watched, WatchedInsert, WatchedTable
from tidegate.orchestration.alerts.causes import queued
from tidegate.orchestration.alerts.channels import secrets_of
from tidegate.orchestration.alerts.gates import growing_quarantine, held_epoch
from tidegate.orchestration.alerts.incident import Incident, Kind, scrub
from tidegate.orchestration.alerts.memory import Seen
from tidegate.orchestration.alerts.options import AlertOptions
from tidegate.orchestration.alerts.tables import Asked, ask, lagging, not_flipped, passing_log, stuck
from tidegate.pipelines.errors import TidegateError

T = TypeVar("T")

AT_ONCE = 8
"""How many questions are under way at the same time."""


class Unanswered(Exception):
    """There was no answer in time."""


def answers(questions: Sequence[Callable[[], T]], within: float) -> list[Callable[[], T]]:
    """Ask all questions, AT_ONCE at the same time, and wait at most `within` s in all. Each answer is a function that
    returns the question's result, or raises its error, or Unanswered. The thread of an unanswered question goes on; it
    does not keep the process alive."""
    end = time.monotonic() + within
    open_ones = list(enumerate(questions))[::-1]
    given: dict[int, Callable[[], T]] = {}

    def ask() -> None:
        while time.monotonic() < end:
            try:
                number, question = open_ones.pop()
            except IndexError:
                return
            given[number] = _answered(question)

    threads = [threading.Thread(target=ask, name="tidegate-asks", daemon=True) for _ in questions[:AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    silent = Unanswered(f"no answer within {within:g} s")
    return [given.get(number) or partial(_raise, silent) for number in range(len(questions))]


def _answered(question: Callable[[], T]) -> Callable[[], T]:
    try:
        answer = question()
    except Exception as error:  # noqa: BLE001 it is handed to whoever asked
        return partial(_raise, error)
    return lambda: answer


def _raise(error: Exception) -> NoReturn:
    raise error


ASK_FOR_S = 20.0
"""How long the sources are asked in one tick, all of them together; Dagster gives up a tick after a minute."""

Questions = tuple[Kind, list[tuple[str, Callable[[], Incident | None]]]]
"""The questions for incidents of one kind: whom to ask, and what."""


W = TypeVar("W", WatchedTable, WatchedInsert, WatchedTable | WatchedInsert)


def _each(kind: Kind, watched: Sequence[W], ask: Callable[[W], Incident | None]) -> Questions:
    return kind, [(item.subject, partial(ask, item)) for item in watched]


@dataclass(frozen=True)
class Look:
    """One tick's check of what is watched. `now` in s, UTC. Nothing that it reports holds a secret of the channels."""

    found: Watched
    instance: dg.DagsterInstance
    options: AlertOptions
    log: logging.Logger
    now: float

    def at_lakes(self, unread: Mapping[str, Asked], known: Collection[str], queue: dict[str, str]) -> Seen:
        """The incidents that the lakes show, with what the sources said last. For incidents whose keys are `known`,
        which have been sent, no rows are read. `queue`: what is known of runs in Dagster's queue; it is updated."""
        found, instance, options, at = self.found, self.instance, self.options, self._at
        return self._seen(
            _each("gate-held", found.inserts, lambda i: held_epoch(i, instance, options, known)),
            _each("quarantine-growing", found.inserts, lambda i: growing_quarantine(i, instance, options, at, known)),
            _each("stuck", (*found.tables, *found.inserts), lambda item: stuck(item, instance, options)),
            _each("not-flipped", found.tables, lambda table: not_flipped(table, instance, options, at)),
            ("runs-queued", [("runs-queued", lambda: queued(instance, found, options, self.now, queue))]),
            self._lag(unread),
        )

    def at_sources(self, known: Mapping[str, Asked]) -> tuple[dict[str, Asked], Seen]:
        """What the sources themselves report: what of each is unread, and the incidents that follow. A source that does
        not answer stays as in `known`, and delays no other."""
        tables, instance, options, at = self.found.tables, self.instance, self.options, self._at
        passing: list[Callable[[], Incident | None]] = [lambda t=t: passing_log(t, instance, options) for t in tables]
        asking: list[Callable[[], Asked | None]] = [lambda t=t: ask(t, known.get(t.subject), at) for t in tables]
        given = answers([*passing, *asking], ASK_FOR_S)
        unread: dict[str, Asked] = {}
        for table, answer in zip(tables, given[len(passing) :], strict=True):
            try:
                answered = cast("Asked | None", answer())
            except Exception as error:  # noqa: BLE001 one that fails must not silence the others
                self.log.warning(scrub(f"{table.name} could not be asked for unread changes: {_cause(error)}"))
                answered = known.get(table.subject)
            unread |= {table.subject: answered} if answered is not None else {}
        looked = cast("list[Callable[[], Incident | None]]", given[: len(passing)])
        asked = [(table.subject, answer) for table, answer in zip(tables, looked, strict=True)]
        return unread, self._seen(("retention", asked), self._lag(unread))

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Those of the channels."""
        return secrets_of(self.options)

    @property
    def _at(self) -> int:
        return round(self.now * 1000)

    def _lag(self, unread: Mapping[str, Asked]) -> Questions:
        def lag(table: WatchedTable) -> Incident | None:
            return lagging(table, self.instance, self.options, self._at, unread.get(table.subject))

        return _each("lag", self.found.tables, lag)

    def _seen(self, *questions: Questions) -> Seen:
        incidents: list[Incident] = []
        unseen: set[str] = set()
        for kind, asked in questions:
            for subject, question in asked:
                try:
                    incident = question()
                except Exception as error:  # noqa: BLE001 one question that fails must not silence the others
                    self.log.warning(scrub(f"{kind} could not be checked: {_cause(error)}"))
                    unseen.add(f"{kind} {subject}")
                    continue
                incidents += [incident.scrubbed(self.secrets)] if incident is not None else []
        return Seen(incidents, frozenset(kind for kind, _ in questions), frozenset(unseen))


def _cause(error: Exception) -> object:
    """An error's message, if it is known to hold no secret; else its type."""
    return error if isinstance(error, TidegateError | OSError | Unanswered) else type(error).__name__
