"""What a person may set about alerts: where they go, and the bounds beyond which something is worth one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
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
        none = timedelta(0)
        wrong = [
            ("flip_within", self.flip_within < none, "no less than nothing", "30 min"),
            ("max_lag", self.max_lag < none, "no less than nothing", "15 min"),
            ("retention_left", not 0 <= self.retention_left <= 1, "a part of the whole, 0 to 1", "0.25"),
            ("quarantine_rows", self.quarantine_rows < 0, "a number of rows, from 0 on", "100"),
            ("quarantine_window", self.quarantine_window <= none, "longer than nothing", "1 h"),
            ("keys", self.keys < 0, "a number of keys, from 0 on", "10"),
        ]
        for name, is_wrong, must, example in wrong:
            if is_wrong:
                raise PlanningError(
                    f"{name} is {getattr(self, name)}, and must be {must}",
                    where=f"the options of alerts, or ${PREFIX}{name.upper()}",
                    state="no alert was checked",
                    next_command=f"set {name} to {example}, for example",
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
        default = AlertOptions()
        found: dict[str, Any] = {}
        for item in fields(self):
            variable = DAGSTER_URL if item.name == "dagster_url" else f"{PREFIX}{item.name.upper()}"
            parse = _PARSERS.get(item.name)
            text = environment.get(variable)
            given = item.name in self.given or getattr(self, item.name) != getattr(default, item.name)
            if not text or parse is None or given:
                continue
            try:
                found[item.name] = parse(text)
            except ValueError as error:
                raise PlanningError(
                    f"${variable} is {text!r}: {error}",
                    where="environment",
                    state="no alert was checked",
                    next_command=f"export {variable}=…   (docs/alerts.md has its meaning)",
                ) from error
        return replace(self, **found)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "flip_within": parse_duration,
    "max_lag": parse_duration,
    "retention_left": float,
    "quarantine_rows": int,
    "quarantine_window": parse_duration,
    "keys": int,
    "dagster_url": lambda text: text.rstrip("/"),
}
