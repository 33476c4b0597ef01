"""What was told is kept in the lake, for `tidegate report`: a log for people, which nothing depends on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from deltalake.exceptions import DeltaError

from tidegate.orchestration.alerts.incident import Message
from tidegate.orchestration.alerts.watched import Watched, opened
from tidegate.pipelines.lake import AlertRow


def journal(messages: Sequence[Message], watched: Watched, log: logging.Logger, now: float) -> None:
    """Add the messages to the `alerts` table of their pipeline's lake; of no pipeline's own, to every pipeline's."""
    folders = {item.pipeline: item.lake for item in (*watched.tables, *watched.inserts)}
    for message in messages:
        incident = message.incident
        for pipeline in [incident.pipeline] if incident.pipeline in folders else sorted(folders):
            lake = opened(folders[pipeline])
            if lake is None:
                continue
            application = f"{lake.id}/{pipeline}/alerts"
            number = lake.alerts.version(application) + 1
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
            )
            try:
                lake.alerts.append([row], application=application, version=number)
            except (DeltaError, OSError) as error:
                log.warning(f"the alert [{incident.key}] is not in the lake's journal: {type(error).__name__}")
