"""Where alerts go: whatever Apprise reaches (mail, chats, push), and a webhook that gets JSON.

Addresses hold passwords and tokens: no name, text or error of this module has any part of one but its scheme.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from orchestration.alerts import webhook
from orchestration.alerts.incident import Message, scrub
from orchestration.alerts.options import URLS, AlertOptions
from orchestration.alerts.webhook import Undelivered
from pipelines.errors import PlanningError
from pipelines.sql.model import Options

TIMEOUT_S = 5.0
"""For a connection to come about, and for each answer."""

_SCHEME = re.compile(r"([a-z][a-z0-9+]{1,20})://", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//([^/@\s]+)@")
_TALKATIVE = ("apprise", "urllib3.connectionpool", "requests", "mail.log")
"""Loggers that may write an address."""


class Channel(Protocol):
    """One place that takes messages. `name` may be shown."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> None:
        """Raises Undelivered, which says why and never where."""
        ...


@dataclass(frozen=True)
class JsonWebhook:
    """$TIDEGATE_WEBHOOK_URL: the whole message as JSON, for programs and for chats that show `text`."""

    url: str = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    name: str = "webhook"

    def send(self, message: Message) -> None:
        webhook.post(self.url, message, TIMEOUT_S, self.secrets)


@dataclass(frozen=True)
class AppriseChannel:
    """One Apprise URL."""

    name: str
    url: str = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def send(self, message: Message) -> None:
        import apprise  # takes its time: only when there is something to send

        kind = apprise.NotifyType.SUCCESS if message.state == "resolved" else apprise.NotifyType.FAILURE
        asset = apprise.AppriseAsset(app_id="Tidegate", app_desc="Tidegate", app_url="", secure_logging=True)
        clean = partial(scrub, secrets=self.secrets)
        with _silent():
            client = apprise.Apprise(asset=asset)
            if not client.add(self.url):
                raise Undelivered("Apprise can not read its address (see its documentation for the form)")
            for service in client:
                service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
            try:
                taken = client.notify(
                    body=clean(message.body),
                    title=clean(message.title),
                    notify_type=kind,
                    body_format=apprise.NotifyFormat.TEXT,
                )
            except Exception as error:  # noqa: BLE001 a plug-in may raise anything; the others have the message
                raise Undelivered(type(error).__name__) from None
        if not taken:
            raise Undelivered("it can not be reached, or refuses the address, the user or the password")


@dataclass(frozen=True)
class BrokenChannel:
    """A channel of the definitions whose variable is not set."""

    name: str
    why: str

    def send(self, message: Message) -> None:
        raise Undelivered(self.why)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep loggers quiet that may write an address."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def channels(options: AlertOptions, environment: Mapping[str, str] | None = None) -> list[Channel]:
    """Every channel, in order: those of the definitions, those of $TIDEGATE_ALERT_URLS, the webhook."""
    known = os.environ if environment is None else environment
    found: list[Channel] = []
    urls: list[tuple[str, str | None]] = []
    for written in options.channels:
        try:
            urls.append((Options({"url": written}).resolve(known)["url"], None))
        except PlanningError as error:
            urls.append((written, error.what))
    urls += [(url, None) for url in known.get(URLS, "").split()]
    hook = webhook.address(known)
    secrets = frozenset(part for url in [*(url for url, _ in urls), hook or ""] for part in _secret_parts(url))
    for number, (url, problem) in enumerate(urls, 1):
        scheme = _SCHEME.match(url)
        name = f"channel {number}" + (f" ({scheme[1].lower()})" if scheme else "")
        found.append(AppriseChannel(name, url, secrets) if problem is None else BrokenChannel(name, problem))
    if hook is not None:
        found.append(JsonWebhook(hook, secrets))
    return found


def _secret_parts(url: str) -> Iterator[str]:
    """What of an address must not turn up in a message: all of it, and its user and password."""
    yield url
    for credentials in _CREDENTIALS.findall(url):
        yield from credentials.split(":", 1)[1:]
