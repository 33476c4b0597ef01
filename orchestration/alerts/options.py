"""What a person may set about alerts: where they go, and the bounds beyond which something is worth one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.secrets import needs_variables

if TYPE_CHECKING:
    from tidegate.pipelines.facts.problem import Bounds

PREFIX = "TIDEGATE_ALERT_"
URLS = f"{PREFIX}URLS"
"""Apprise URLs, with blanks or line ends between them. Secret."""
DAGSTER_URL = "TIDEGATE_DAGSTER_URL"


@dataclass(frozen=True)
class AlertOptions:
    """Every option has an environment variable TIDEGATE_ALERT_<NAME>, which holds where nothing was given.

    Attributes:
        channels: Apprise URLs whose secrets are written `${VARIABLE}`; they come beside those of $TIDEGATE_ALERT_URLS.
        flip_within: a build that has not flipped so long after its first plan is an incident.
        max_lag: a source that is further behind is one.
        retention_left: a source whose log is deleted from under the cursor once less than this part of the server's
            retention is left (0 to 1).
        quarantine_rows: more rows than this that went to an INSERT's quarantine within `quarantine_window` are one.
        keys: so many keys, with their nearest version, stand in a message; 0 keeps data out of messages.
        dagster_url: where the UI is, for links; $TIDEGATE_DAGSTER_URL.
        given: names of options that were set, to a value that may be the default; no variable replaces them.
    """

    channels: tuple[str, ...] = ()
    flip_within: timedelta = timedelta(minutes=30)
    max_lag: timedelta = timedelta(minutes=15)
    retention_left: float = 0.25
    quarantine_rows: int = 100
    quarantine_window: timedelta = timedelta(hours=1)
    keys: int = 10
    dagster_url: str = "http://127.0.0.1:3000"
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        for channel in self.channels:
            if not needs_variables(channel):
                raise PlanningError(
                    "a channel of alerts is written out, with whatever secret it holds",
                    where="channels",
                    state="nothing was loaded",
                    next_command=f"write it as ${{VARIABLE}} (or its secret part), or put it into ${URLS}",
                )
        for name, (holds, must) in _MUST.items():
            if not holds(getattr(self, name)):
                raise PlanningError(
                    f"{name} is {getattr(self, name)}, and must be {must}",
                    where=f"the options of alerts, or ${PREFIX}{name.upper()}",
                    state="no alert was checked",
                    next_command=f"leave {name} out, which is the same as {getattr(_DEFAULT, name)}",
                )

    @property
    def bounds(self) -> Bounds:
        """What is a problem. A run that was lost may be started again, so its epoch is not unfinished at once."""
        from tidegate.pipelines.facts.problem import Bounds  # a code location does without, until its first tick

        return Bounds(
            self.flip_within,
            self.max_lag,
            self.retention_left,
            self.quarantine_rows,
            self.quarantine_window,
            self.max_lag,
            self.keys,
        )

    def of_environment(self, environment: Mapping[str, str] = os.environ) -> AlertOptions:
        """These options; those that were not given are taken from the environment, where it has them. A value that is
        not the default was given. Raises PlanningError that names a variable with an invalid value."""
        variables = {name: f"{PREFIX}{name.upper()}" for name in _PARSERS} | {"dagster_url": DAGSTER_URL}
        left = [name for name in {*variables} - self.given if getattr(self, name) == getattr(_DEFAULT, name)]
        written = {name: text for name in left if (text := environment.get(variables[name]))}
        mend = "export {0}=…   (docs/alerts.md has its meaning)"
        return replace(self, **parsed(written, "environment", "no alert was checked", mend, variables))


def parsed(
    written: Mapping[str, str], where: str, state: str, mend: str, called: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The values of options that are written as text; `called`: the variables that they come from. Raises
    PlanningError."""
    found = {}
    for name, text in written.items():
        shown = called[name] if called else name
        try:
            found[name] = _PARSERS[name](text)
        except ValueError as error:
            what = f"{'$' if called else ''}{shown} is {text!r}: {error}"
            raise PlanningError(what, where=where, state=state, next_command=mend.format(shown)) from error
    return found


_NONE = timedelta(0)
_MUST: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "flip_within": (lambda value: value >= _NONE, "no less than nothing"),
    "max_lag": (lambda value: value >= _NONE, "no less than nothing"),
    "retention_left": (lambda value: 0 <= value <= 1, "a part of the whole, 0 to 1"),
    "quarantine_rows": (lambda value: value >= 0, "a number of rows, from 0 on"),
    "quarantine_window": (lambda value: value > _NONE, "longer than nothing"),
    "keys": (lambda value: value >= 0, "a number of keys, from 0 on"),
}
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "flip_within": parse_duration,
    "max_lag": parse_duration,
    "retention_left": float,
    "quarantine_rows": int,
    "quarantine_window": parse_duration,
    "keys": int,
    "dagster_url": lambda text: text.rstrip("/"),
}
_DEFAULT = AlertOptions()
