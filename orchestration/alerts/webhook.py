"""The webhook that gets alerts as JSON, if $TIDEGATE_WEBHOOK_URL names one. Apprise's own JSON has other fields.

The address is a secret (most chats put a token into it): it is never logged. A webhook that does not answer is logged,
and is no one's failure.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from tidegate.orchestration.alerts.incident import Message

VARIABLE = "TIDEGATE_WEBHOOK_URL"
TIMEOUT_S = 5.0


class Undelivered(Exception):
    """A channel did not take the message. Says why, never where."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: what is sent on arrives as a GET without the message, and looks as if it were taken."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def address(environment: Mapping[str, str] | None = None) -> str | None:
    """The webhook's URL, if there is one."""
    return (os.environ if environment is None else environment).get(VARIABLE) or None


def post(url: str, message: Message, timeout: float = TIMEOUT_S, secrets: Iterable[str] = ()) -> None:
    """Send one message as JSON. Raises Undelivered."""
    body = json.dumps(message.scrubbed(secrets).payload(), ensure_ascii=False).encode()
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
