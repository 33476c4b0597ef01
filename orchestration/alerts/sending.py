"""Messages to channels, each in a thread of its own, so that one that hangs delays no other. A tick waits for at most
SEND_FOR_S: what is not taken by then counts as not taken."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from tidegate.orchestration.alerts.channels import Channel, Undelivered
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.scrubbing import scrub
from tidegate.orchestration.alerts.threads import work

SEND_FOR_S = 12.0
MOST_UNSENT = 100
"""Messages that are kept while no channel takes any; the oldest go first."""


def sent(messages: Sequence[Message], channels: Sequence[Channel], log: logging.Logger) -> list[Message]:
    """Send messages to every channel; returns those that none has taken."""
    taken = set[int]()

    def deliver(channel: Channel) -> None:
        for number, message in enumerate(messages):
            try:
                channel.send(message)
            except Exception as error:  # noqa: BLE001 what nobody has foreseen may hold an address
                why = str(error) if isinstance(error, Undelivered) else type(error).__name__
                log.warning(scrub(f"{channel.name} did not take the alert [{message.key}]: {why}"))
            else:
                taken.add(number)
                log.info(f"{channel.name} took the alert [{message.key}]")

    if not channels or not messages:
        return []
    ended = work([partial(deliver, channel) for channel in channels], SEND_FOR_S, "tidegate-sends")
    for channel in (channel for number, channel in enumerate(channels) if number not in ended):
        log.warning(f"{channel.name} has not answered within {SEND_FOR_S:g} s")
    left = [message for number, message in enumerate(messages) if number not in taken]
    for message in left[:-MOST_UNSENT]:
        log.warning(f"no channel took the alert [{message.key}]; it is given up")
    return left[-MOST_UNSENT:]
