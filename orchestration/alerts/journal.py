"""Sent alerts are stored in the lake: for `tidegate report`, and so that code locations that share a lake send each
incident once. If the journal cannot be read or written, the message is sent all the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

from deltalake.exceptions import DeltaError

from tidegate.assets.watched import Watched
from tidegate.orchestration.alerts.incident import Message
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import AlertRow, Lake

LOOKED_AT = 200
"""How many of each pipeline's newest rows are searched for what another code location has sent."""
TRIES = 4
"""How often a row is tried: another location may add one at the same time, which is then read first."""


def journal(
    messages: Sequence[Message], watched: Watched, log: logging.Logger, now: float, teller: str = ""
) -> list[Message]:
    """Add the messages to the `alerts` table of their pipeline's lake; messages of no pipeline to every lake's. Returns
    those to send: all that no other `teller` (a code location) has sent for one of these lakes."""
    folders = {item.pipeline: item.lake for item in (*watched.tables, *watched.inserts)}
    own: list[Message] = []
    for message in messages:
        pipelines = [message.incident.pipeline] if message.incident.pipeline in folders else sorted(folders)
        by_others = False
        for pipeline in pipelines:
            try:
                lake = Lake.found(folders[pipeline])
                by_others |= lake is not None and not _claimed(lake, pipeline, message, now, teller)
            except (DeltaError, OSError, LakeError) as error:
                log.warning(f"the alert [{message.incident.key}] is not in the lake's journal: {type(error).__name__}")
        if by_others:
            log.info(f"[{message.incident.key}] ({message.state}) was sent by another code location on this lake")
        else:
            own.append(message)
    return own


def _claimed(lake: Lake, pipeline: str, message: Message, now: float, teller: str) -> bool:
    """Add the message, unless a row of another sensor records the same."""
    incident, application = message.incident, f"{lake.id}/{pipeline}/alerts"
    for _ in range(TRIES):
        number = lake.alerts.version(application) + 1
        last = _last_sent(lake, incident.key)
        if last is not None and last.state == message.state and (last.teller or teller) != teller:
            return False
        row = AlertRow(
            owner=pipeline,
            generation=1,
            epoch=number,
            told_at=round(now * 1000),
            kind=incident.kind,
            state=message.state,
            incident=incident.key,
            title=incident.title,
            next=incident.next[0] if incident.next else "",
            teller=teller,
        )
        if lake.alerts.append([row], application=application, version=number):
            return True
    return True


def _last_sent(lake: Lake, key: str) -> AlertRow | None:
    """The newest row about an incident, whatever pipeline sent it: two that share a lake may share a table."""
    found = [
        row
        for owner in lake.alerts.owners()
        for row in islice(lake.alerts.newest_first(owner), LOOKED_AT)
        if row.incident == key
    ]
    return max(found, key=lambda row: (row.told_at, row.epoch), default=None)
