"""What Spark throws while it reads a topic, as the error that a person can act on."""

from __future__ import annotations

import json
import re

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.checks import anew
from tidegate.pipelines.sources.kafka.reading import POISON

_LOST = re.compile(
    r"OffsetOutOfRange|data may have been (lost|missed)|Cannot fetch offset|KAFKA_DATA_LOSS|"
    r"may have been aged out|Partition[^\n]{0,80} (gone|missing)|UnknownTopicOrPartition",
    re.IGNORECASE,
)
_SILENT = re.compile(r"TimeoutException|Timeout of \d+|timed out|Cannot fetch record", re.IGNORECASE)
_REFUSED = re.compile(r"(Sasl|Ssl)?AuthenticationException|AuthorizationException|Not authorized")

_PLANNED = "the epoch is planned, none of its rows are committed; epochs before it stand"


def explain(error: BaseException, table: str, place: str, where: str) -> SourceError | None:
    """The typed error of `error`, thrown while the step at `place` was read; None where Spark's own words are best."""
    said = str(error)
    poison = _poison(said)
    if poison is not None:
        return SourceError(
            f"{table}: {poison['split']}, offset {poison['offset']}: {poison['error']}",
            where=f"{place}; {where}",
            state="nothing of the epoch is committed; epochs before it stand",
            next_command="set 'format.on-error' = 'quarantine' to keep such messages apart (or correct the columns), "
            "then run the same command again",
        )
    if _LOST.search(said):
        return SourceError(
            f"{table}: Kafka no longer has what the plan asks for: {_line(said, _LOST)}",
            where=f"{place}; {where}",
            state=_PLANNED,
            next_command=anew(table),
        )
    if _REFUSED.search(said):
        return SourceError(
            f"{table}: the Kafka cluster refused the reader: {_line(said, _REFUSED)}",
            where=f"{place}; {where}",
            state=_PLANNED,
            next_command="check 'properties.sasl.*', 'properties.ssl.*' and the user's rights, then run again",
        )
    if _SILENT.search(said):
        return SourceError(
            f"{table}: a Kafka broker did not answer in time: {_line(said, _SILENT)}",
            where=f"{place}; {where}",
            state=_PLANNED,
            next_command="check that the brokers run, then run the same command again: it goes on at this epoch",
        )
    return None


def _poison(said: str) -> dict[str, object] | None:
    start = said.find(POISON)
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(said, start + len(POISON))
    except json.JSONDecodeError:
        return None
    return found


def _line(said: str, pattern: re.Pattern[str]) -> str:
    """The line that says it."""
    line = next((line.strip() for line in said.splitlines() if pattern.search(line)), said.strip())
    return line.removeprefix("Caused by: ")[:300]
