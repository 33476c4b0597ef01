"""One look at the lakes and at their sources: which incidents there are now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import dagster as dg

from orchestration.alerts.builds import not_flipped
from orchestration.alerts.gates import growing_quarantine, held_epoch
from orchestration.alerts.incident import Incident, Kind, scrub
from orchestration.alerts.lag import Asked, ask, key_of, lagging
from orchestration.alerts.logs import passing_log
from orchestration.alerts.options import AlertOptions
from orchestration.alerts.patience import Unanswered, answers
from orchestration.alerts.watched import Watched
from pipelines.errors import TidegateError

ASK_FOR_S = 20.0
"""How long the sources are asked in one tick, all of them together; Dagster gives up a tick after a minute."""

Questions = tuple[Kind, list[Callable[[], Incident | None]]]
"""All that has to be asked to know the incidents of one kind."""


@dataclass(frozen=True)
class Seen:
    """What a look has found. A kind that is not among `kinds` could not be looked at, and is left as it was."""

    incidents: Sequence[Incident]
    kinds: set[Kind]


@dataclass(frozen=True)
class Look:
    """One tick's look at what is watched. `now` in s, UTC."""

    found: Watched
    instance: dg.DagsterInstance
    options: AlertOptions
    log: logging.Logger
    now: float

    def at_lakes(self, unread: Mapping[str, Asked]) -> Seen:
        """What the lakes tell, with what the sources said last."""
        found, instance, options, at = self.found, self.instance, self.options, self._at
        return self._seen(
            ("gate-held", [lambda i=i: held_epoch(i, instance, options) for i in found.inserts]),
            ("quarantine-growing", [lambda i=i: growing_quarantine(i, instance, options, at) for i in found.inserts]),
            ("not-flipped", [lambda t=t: not_flipped(t, instance, options, at) for t in found.tables]),
            self._lag(unread),
        )

    def at_sources(self, known: Mapping[str, Asked]) -> tuple[dict[str, Asked], Seen]:
        """What the sources themselves tell: what of each is unread, and what follows from that. One that does not
        answer is left as it was in `known`, and holds up no other."""
        tables, instance, options, at = self.found.tables, self.instance, self.options, self._at
        passing: list[Callable[[], Incident | None]] = [lambda t=t: passing_log(t, instance, options) for t in tables]
        asking: list[Callable[[], Asked | None]] = [lambda t=t: ask(t, known.get(key_of(t)), at) for t in tables]
        given = answers([*passing, *asking], ASK_FOR_S)
        unread: dict[str, Asked] = {}
        for table, answer in zip(tables, given[len(passing) :], strict=True):
            try:
                said = cast("Asked | None", answer())
            except Exception as error:  # noqa: BLE001 one that fails must not silence the others
                self.log.warning(scrub(f"{table.name} could not be asked what is unread: {_words(error)}"))
                said = known.get(key_of(table))
            unread |= {key_of(table): said} if said is not None else {}
        looked = cast("list[Callable[[], Incident | None]]", given[: len(passing)])
        return unread, self._seen(("retention", looked), self._lag(unread))

    @property
    def _at(self) -> int:
        return round(self.now * 1000)

    def _lag(self, unread: Mapping[str, Asked]) -> Questions:
        instance, options, at = self.instance, self.options, self._at
        return "lag", [lambda t=t: lagging(t, instance, options, at, unread.get(key_of(t))) for t in self.found.tables]

    def _seen(self, *questions: Questions) -> Seen:
        incidents: list[Incident] = []
        kinds: set[Kind] = set()
        for kind, asked in questions:
            whole = True
            for question in asked:
                try:
                    incident = question()
                except Exception as error:  # noqa: BLE001 one question that fails must not silence the others
                    self.log.warning(scrub(f"{kind} could not be looked at: {_words(error)}"))
                    whole = False
                    continue
                incidents += [incident] if incident is not None else []
            if whole:
                kinds.add(kind)
        return Seen(incidents, kinds)


def _words(error: Exception) -> object:
    """What an error says, where somebody has seen to it that it holds no secret; else its kind."""
    return error if isinstance(error, TidegateError | OSError | Unanswered) else type(error).__name__
