"""Messages to channels. Each channel has a thread of its own, so one that hangs does not delay the others, and a tick
waits for at most SEND_FOR_S: one that takes too long is lost with all that it has sent, and sent again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from tidegate.orchestration.alerts.channels import Channel, Undelivered
from tidegate.orchestration.alerts.message import Id, Message
from tidegate.orchestration.alerts.scrubbing import scrub

SEND_FOR_S = 12.0
MOST_UNSENT = 100
"""Messages that are kept while no channel takes any; the oldest go first."""


class Sender(threading.Thread):
    """Sends messages to one channel, in order."""

    def __init__(self, channel: Channel, messages: Sequence[Message], log: logging.Logger) -> None:
        super().__init__(name="tidegate-sends", daemon=True)
        self.channel, self.messages, self.log = channel, list(messages), log
        self.taken = set[Id]()

    def run(self) -> None:
        for message in self.messages:
            try:
                self.channel.send(message)
            except Exception as error:  # noqa: BLE001 what nobody has foreseen may hold an address
                why = str(error) if isinstance(error, Undelivered) else type(error).__name__
                self.log.warning(scrub(f"{self.channel.name} did not take the alert [{message.key}]: {why}"))
            else:
                self.taken.add(message.id)
                self.log.info(f"{self.channel.name} took the alert [{message.key}]")


_senders: dict[str, Sender] = {}
"""The last sender of each channel: while it goes on, the channel gets nothing else, and nothing twice."""


def sent(
    new: Sequence[Message], unsent: Sequence[Message], channels: Sequence[Channel], log: logging.Logger
) -> list[Message]:
    """Send what is new, and what no channel had taken, to every channel; returns the messages that none has taken. A
    channel that has not ended what an earlier tick gave it is passed over."""
    if not channels:
        return []
    late = {each for sender in _senders.values() for each in sender.taken}
    messages = [*(message for message in unsent if message.id not in late), *new]
    begun = list[Sender]()
    for channel in channels if messages else ():
        before = _senders.get(channel.name)
        if before is not None and before.is_alive():
            log.warning(f"{channel.name} has not answered yet; it gets no alerts meanwhile")
        else:
            begun.append(Sender(channel, messages, log))
            _senders[channel.name] = begun[-1]
    for sender in begun:
        sender.start()
    end = time.monotonic() + SEND_FOR_S
    for sender in begun:
        sender.join(max(0.0, end - time.monotonic()))
    taken = {each for sender in begun for each in sender.taken}
    left = [message for message in messages if message.id not in taken]
    for message in left[:-MOST_UNSENT]:
        log.warning(f"no channel took the alert [{message.key}]; it is given up")
    return left[-MOST_UNSENT:]
