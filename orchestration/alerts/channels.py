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
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, unquote_plus

from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.options import URLS, AlertOptions
from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.syntax.secrets import is_secret

VARIABLE = "TIDEGATE_WEBHOOK_URL"
"""Names the webhook that gets alerts as JSON. Apprise's own JSON has other fields."""
TIMEOUT_S = 5.0
"""For a connection to come about, and for each answer."""
_SCHEME = re.compile(r"([a-z][a-z0-9+]{1,20})://", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//([^/@\s]+)@")
_PARAMETER = re.compile(r"[?&]([^=&\s]+)=([^&#\s]*)")


class Undelivered(Exception):
    """A channel did not take the message. Says why, never where."""


class Channel(Protocol):
    """One place that takes messages. `name` may be shown."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> None:
        """Send a message. Raises Undelivered, which says why and never where."""
        ...


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the message would arrive as a GET without its content, and look as if it were taken."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


@dataclass(frozen=True)
class JsonWebhook:
    """$TIDEGATE_WEBHOOK_URL: the whole message as JSON, for programs and for chats that show `text`."""

    url: str = field(repr=False)
    name: str = "webhook"

    def send(self, message: Message) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise Undelivered(f"${VARIABLE} is no http or https address")
        body = json.dumps(message.payload, ensure_ascii=False, default=str).encode()
        try:
            request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"}, method="POST")
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise Undelivered(f"it answered {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "reason", None)
            raise Undelivered(type(why if isinstance(why, Exception) else error).__name__) from None


_SENDING = ContextVar("_SENDING", default=False)
"""Whether this thread, or one that Apprise starts for it, sends. What others do with the loggers below is theirs."""
for _talkative in ("apprise", "urllib3.connectionpool", "requests", "mail.log"):  # they may write an address
    logging.getLogger(_talkative).addFilter(lambda record: not _SENDING.get())


@dataclass(frozen=True)
class AppriseChannel:
    """One Apprise URL. `wrong`: why its address is none, as where its variable is not set."""

    name: str
    url: str = field(repr=False)
    wrong: str = ""

    def send(self, message: Message) -> None:
        if self.wrong:
            raise Undelivered(self.wrong)
        before = _SENDING.set(True)
        try:
            self._notify(message)
        finally:
            _SENDING.reset(before)

    def _notify(self, message: Message) -> None:
        import apprise  # takes its time: only when there is something to send

        kind = apprise.NotifyType.SUCCESS if message.state == "resolved" else apprise.NotifyType.FAILURE
        asset = apprise.AppriseAsset(app_id="Tidegate", app_desc="Tidegate", app_url="", secure_logging=True)
        client = apprise.Apprise(asset=asset)
        if not client.add(self.url):
            raise Undelivered("Apprise cannot read its address (see its documentation for the form)")
        for service in client:
            service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
        text = {"body": message.body, "title": message.title, "body_format": apprise.NotifyFormat.TEXT}
        try:
            taken = client.notify(**text, notify_type=kind)
        except Exception as error:  # noqa: BLE001 a plug-in may raise anything; the others have the message
            raise Undelivered(type(error).__name__) from None
        if not taken:
            raise Undelivered("it cannot be reached, or refuses the address, the user or the password")


def channels(options: AlertOptions, environment: Mapping[str, str] = os.environ) -> list[Channel]:
    """Every channel, in order: those of the definitions, those of $TIDEGATE_ALERT_URLS, the webhook."""
    found: list[Channel] = []
    for number, (url, wrong) in enumerate(_addresses(options, environment), 1):
        scheme = _SCHEME.match(url)
        found.append(AppriseChannel(f"channel {number}" + (f" ({scheme[1].lower()})" if scheme else ""), url, wrong))
    return [*found, JsonWebhook(hook)] if (hook := environment.get(VARIABLE)) else found


def _addresses(options: AlertOptions, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Apprise's addresses, each with what is wrong with it."""
    for written in options.channels:
        try:
            yield Options({"url": written}).resolve(known)["url"], ""
        except PlanningError as error:
            yield written, error.what
    for url in known.get(URLS, "").split():
        yield url, ""


def secrets_of(options: AlertOptions, environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The parts of the channels' addresses that must not appear in anything that is sent: each whole, and its
    passwords, encoded and decoded."""
    urls = [url for url, wrong in _addresses(options, environment) if not wrong]
    urls += [environment[VARIABLE]] if environment.get(VARIABLE) else []
    words = [part for url in urls for found in _CREDENTIALS.findall(url) for part in found.split(":", 1)[1:]]
    given = [pair for url in urls for pair in _PARAMETER.findall(url)]
    words += [value for name, value in given if name == "pass" or is_secret(name)]
    return frozenset([*urls, *(form(word) for word in words for form in (str, unquote_plus, unquote))])
