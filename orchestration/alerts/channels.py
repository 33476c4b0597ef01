"""Where alerts go: whatever Apprise reaches (mail, chats, push), and a webhook that gets JSON.

Addresses hold passwords and tokens: no name, text or error of this module has any part of one but its scheme.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, unquote_plus, urlsplit

from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.options import URLS, AlertOptions
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.syntax.secrets import is_secret

VARIABLE = "TIDEGATE_WEBHOOK_URL"
"""Names the webhook that gets alerts as JSON. Apprise's own JSON has other fields."""

TIMEOUT_S = 5.0
"""For a connection to come about, and for each answer."""


class Undelivered(Exception):
    """A channel did not take the message. Says why, never where."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the message would arrive as a GET without its content, and look as if it were taken."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def address(environment: Mapping[str, str] = os.environ) -> str | None:
    """The webhook's URL, if there is one."""
    return environment.get(VARIABLE) or None


def post(url: str, message: Message, timeout: float = TIMEOUT_S) -> None:
    """Send one message as JSON. Raises Undelivered."""
    body = json.dumps(message.payload, ensure_ascii=False, default=str).encode()
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise Undelivered(f"${VARIABLE} is no http or https address")
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
        with _OPENER.open(request, timeout=timeout) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise Undelivered(f"it answered {error.code}") from None
    except urllib.error.URLError as error:
        raise Undelivered(type(error.reason).__name__ if isinstance(error.reason, Exception) else "no route") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Undelivered(type(error).__name__) from None


_SCHEME = re.compile(r"([a-z][a-z0-9+]{1,20})://", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//([^/@\s]+)@")
_PARAMETER = re.compile(r"[?&]([^=&\s]+)=([^&#\s]*)")
_TALKATIVE = ("apprise", "urllib3.connectionpool", "requests", "mail.log")
"""Loggers that may write an address."""


_SENDING = ContextVar("_SENDING", default=False)


def _is_told(record: logging.LogRecord) -> bool:
    return not _SENDING.get()


for _name in _TALKATIVE:
    logging.getLogger(_name).addFilter(_is_told)


@contextmanager
def _silence() -> Iterator[None]:
    """Silences those loggers in this thread: what others do with them is theirs."""
    before = _SENDING.set(True)
    try:
        yield
    finally:
        _SENDING.reset(before)


class Channel(Protocol):
    """One place that takes messages. `name` may be shown."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> None:
        """Send a message. Raises Undelivered, which says why and never where."""
        ...


@dataclass(frozen=True)
class JsonWebhook:
    """$TIDEGATE_WEBHOOK_URL: the whole message as JSON, for programs and for chats that show `text`."""

    url: str = field(repr=False)
    name: str = "webhook"

    def send(self, message: Message) -> None:
        post(self.url, message)


@dataclass(frozen=True)
class AppriseChannel:
    """One Apprise URL."""

    name: str
    url: str = field(repr=False)

    def send(self, message: Message) -> None:
        import apprise  # takes its time: only when there is something to send

        kind = apprise.NotifyType.SUCCESS if message.state == "resolved" else apprise.NotifyType.FAILURE
        asset = apprise.AppriseAsset(app_id="Tidegate", app_desc="Tidegate", app_url="", secure_logging=True)
        with _silence():
            client = apprise.Apprise(asset=asset)
            if not client.add(self.url):
                raise Undelivered("Apprise cannot read its address (see its documentation for the form)")
            for service in client:
                service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
            try:
                taken = client.notify(
                    body=message.body,
                    title=message.title,
                    notify_type=kind,
                    body_format=apprise.NotifyFormat.TEXT,
                )
            except Exception as error:  # noqa: BLE001 a plug-in may raise anything; the others have the message
                raise Undelivered(type(error).__name__) from None
        if not taken:
            raise Undelivered("it cannot be reached, or refuses the address, the user or the password")


@dataclass(frozen=True)
class BrokenChannel:
    """A channel of the definitions whose variable is not set."""

    name: str
    why: str

    def send(self, message: Message) -> None:
        raise Undelivered(self.why)


def channels(options: AlertOptions, environment: Mapping[str, str] = os.environ) -> list[Channel]:
    """Every channel, in order: those of the definitions, those of $TIDEGATE_ALERT_URLS, the webhook."""
    found: list[Channel] = []
    hook = address(environment)
    for number, (url, problem) in enumerate(_addresses(options, environment), 1):
        scheme = _SCHEME.match(url)
        name = f"channel {number}" + (f" ({scheme[1].lower()})" if scheme else "")
        found.append(AppriseChannel(name, url) if problem is None else BrokenChannel(name, problem))
    if hook is not None:
        found.append(JsonWebhook(hook))
    return found


def _addresses(options: AlertOptions, known: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Apprise's addresses, each with what is wrong with it."""
    for written in options.channels:
        try:
            yield Options({"url": written}).resolve(known)["url"], None
        except PlanningError as error:
            yield written, error.what
    for url in known.get(URLS, "").split():
        yield url, None


def secrets_of(options: AlertOptions, environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The parts of the channels' addresses that must not appear in anything that is sent."""
    urls = [url for url, problem in _addresses(options, environment) if problem is None]
    return frozenset(part for url in [*urls, address(environment) or ""] for part in _secret_parts(url))


def _secret_parts(url: str) -> Iterator[str]:
    """The parts of an address that must not appear in a message: all of it, and its passwords, encoded and decoded."""
    yield url
    found = [part for credentials in _CREDENTIALS.findall(url) for part in credentials.split(":", 1)[1:]]
    found += [value for name, value in _PARAMETER.findall(url) if name == "pass" or is_secret(name)]
    for password in found:
        yield from (password, unquote_plus(password), unquote(password))
