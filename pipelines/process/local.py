"""A process function on plain Python records, epoch by epoch: for trying one out, and for tests.

run = LocalRun(EventTimeExtension.wrap_process_function(CountClicks()), key=lambda click: click.news_id)
(counts,) = run.epoch([Arrived(clicks, Watermark(60_000))])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.process.engine.binding import shape_of
from tidegate.pipelines.process.engine.epoch import Entries, KeyedRecord, KeyState, TaskRun
from tidegate.pipelines.process.engine.steps import LandedStep, steps_of
from tidegate.pipelines.process.generator import EventTimeGeneratorFunction
from tidegate.pipelines.process.state.declared import state_types
from tidegate.pipelines.process.state.stores import Known, cell_of, plain
from tidegate.pipelines.process.watermarks.declarations import GeneralizedWatermark, WatermarkDeclaration
from tidegate.pipelines.watermarks import BEGINNING, Watermark

Key = Callable[[Any], Any]


@dataclass(frozen=True)
class Arrived:
    """What arrives from one input at once: records, then a watermark (None: the input's watermark does not move).

    `told`: the watermarks of other declarations that arrive with it. `at`: when it landed (ms, UTC), for processing
    time.
    """

    records: Sequence[Any] = ()
    watermark: Watermark | None = None
    input: int = 0
    idle: bool = False
    at: int = 0
    told: Sequence[GeneralizedWatermark] = ()


@dataclass
class LocalRun:
    """A process function over inputs that arrive bit by bit. Between epochs only the declared state is stored.

    State is converted to its type as in a run; only a run knows the columns of an output, and refuses what they could
    not hold.

    Args:
        function: Plain, or wrapped.
        key: A record's key; one for each input, or one for all.
        declarations: Of the watermarks that inputs bring beside event time.
    """

    function: Any
    key: Key | Sequence[Key]
    declarations: Sequence[WatermarkDeclaration] = ()
    _state: dict[Any, tuple[list[Any], list[int]]] = field(default_factory=dict)
    _broadcast: Entries = field(default_factory=dict)
    _before: dict[int, LandedStep] = field(default_factory=dict)
    _last: Watermark = BEGINNING
    _time: int = BEGINNING.timestamp

    def __post_init__(self) -> None:
        if isinstance(self.function, EventTimeGeneratorFunction):
            self.function = copy.deepcopy(self.function)
        self.shape = shape_of(self.function)
        state_types(self.shape.states, self.shape.name)  # a type that does not exist is refused now
        self.emitted: dict[str, int | bool] = {}
        """The watermarks that the last epoch sent on."""

    def epoch(self, arrived: Iterable[Arrived], now: int | None = None) -> tuple[list[Any], ...]:
        """One epoch over what has arrived; what was collected, by output. `now`: its moment, in processing time."""
        landed, records, whole = self._landed(list(arrived))
        steps, self._last = steps_of(
            range(self.shape.inputs),
            landed,
            before=list(self._before.values()),
            last=self._last,
            time=self._time,
            now=now,
            declarations=self.declarations,
        )
        # A generator goes on in the next epoch, as it does in a pipeline, where the log keeps what it has come to.
        goes_on = isinstance(self.function, EventTimeGeneratorFunction)
        function = self.function if goes_on else copy.deepcopy(self.function)
        run = TaskRun(function, steps, self._broadcast, whole)
        for key in {**self._state, **records}:
            self._keep(key, run.key(key, self._stored(key), records.get(key, ())))
        run.close()
        self._broadcast, self._time = run.broadcast, steps.end
        self._before |= {step.input: step for step in landed}  # type: ignore[misc]
        self.emitted = run.emitted()
        return run.outputs

    def _landed(
        self, arrived: list[Arrived]
    ) -> tuple[list[LandedStep], dict[Any, list[KeyedRecord]], list[KeyedRecord]]:
        landed: list[LandedStep] = []
        keyed: dict[Any, list[KeyedRecord]] = {}
        whole: list[KeyedRecord] = []
        stood = dict(self._before)
        for step, item in enumerate(arrived):
            last = stood.get(item.input, LandedStep(item.input, BEGINNING))
            declared = {watermark.identifier: watermark for watermark in (*last.declared, *item.told)}
            now = item.watermark or last.watermark
            landed.append(LandedStep(item.input, now, item.idle, item.at, tuple(declared.values())))
            stood[item.input] = landed[-1]
            for record in item.records:
                if self.shape.broadcast and item.input == 1:
                    whole.append((step, record))
                else:
                    keyed.setdefault(self._key_of(item.input, record), []).append((step, record))
        return landed, keyed, whole

    def _key_of(self, place: int, record: Any) -> Any:
        return self.key(record) if callable(self.key) else self.key[place](record)

    # --- state, as plain values --------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[Any, dict[str, Any]]:
        """Key -> its stored state: values by the names of the states, `timers` where there are any."""
        names = [declaration.name for declaration in self.shape.keyed]
        return {
            key: {
                **{name: value for name, value in zip(names, values, strict=True) if value is not None},
                **({"timers": timers} if timers else {}),
            }
            for key, (values, timers) in self._state.items()
        }

    @property
    def broadcast(self) -> Entries:
        return self._broadcast

    def _stored(self, key: Any) -> KeyState | None:
        if key not in self._state:
            return None
        values, timers = copy.deepcopy(self._state[key])
        pairs = zip(self.shape.keyed, values, strict=True)
        return KeyState([cell_of(item)(None if value is None else Known(value)) for item, value in pairs], timers)

    def _keep(self, key: Any, state: KeyState) -> None:
        values = list(map(plain, state.cells))
        if state.timers or any(value is not None for value in values):
            self._state[key] = (values, state.timers)
        else:
            self._state.pop(key, None)
