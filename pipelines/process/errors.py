"""Typed errors of process functions. Those raised on a worker are one line: they come to the driver as text."""

from __future__ import annotations

from tidegate.pipelines.errors import TidegateError


class ProcessError(TidegateError):
    """Base of the errors of this package."""


class InvalidDeclaration(ProcessError, ValueError):
    """A watermark or a state that cannot be declared like this, or is declared twice."""


class UndeclaredWatermark(ProcessError):
    """A watermark that its function's `watermark_declarations` does not name was emitted."""

    def __init__(self, identifier: str, declared: list[str]) -> None:
        self.identifier = identifier
        known = f"declared are {', '.join(declared)}" if declared else "none is declared"
        super().__init__(f"watermark {identifier!r} is not declared ({known}); name it in watermark_declarations()")


class UndeclaredState(ProcessError):
    """A state that its function's `uses_states` does not name was asked for."""

    def __init__(self, name: str, declared: list[str]) -> None:
        self.name = name
        known = f"declared are {', '.join(declared)}" if declared else "none is declared"
        super().__init__(f"state {name!r} is not declared ({known}); name it in uses_states()")


class NotKeyed(ProcessError):
    """A timer, a key or keyed state was used outside of a keyed context: in a callback that belongs to no key, or for
    an input without a key."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a key, and there is none here; use it in process_record or on_event_timer of a keyed input, "
            "or through apply_to_all_partitions"
        )


class BroadcastReadOnly(ProcessError):
    """Broadcast state was written while a record of the other input was processed: it would differ between tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"broadcast state {name!r} is written from the broadcast input alone, so that it is the same on every task"
        )


class NotWrapped(ProcessError):
    """An event-time process function that was not passed through EventTimeExtension.wrap_process_function."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} uses event time; give EventTimeExtension.wrap_process_function({name}()), which brings the timers"
        )


def shown(value: object) -> str:
    """A value as error messages show it, cut if it is long."""
    return cut(repr(value))


def cut(text: str, longest: int = 300) -> str:
    """A text on one line, cut to about `longest` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else f"{flat[:longest]}… ({len(flat):,} characters)"


class NoEventTime(ProcessError):
    """An extractor that raised, or gave something that is no time."""

    def __init__(self, record: object, why: str) -> None:
        super().__init__(f"the event time of {shown(record)} cannot be found: {cut(why)}")


class FunctionRaised(ProcessError):
    """A process function that raised, with the key and the record (or the timer) that it was called for."""

    def __init__(self, function: str, place: str, message: str) -> None:
        self.function, self.place, self.message = function, place, message
        super().__init__(f"process function {function} failed at {place}: {message}")


class WrongValue(ProcessError):
    """An output or a state that is not of its declared type."""
