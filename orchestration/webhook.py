"""Where alerts go beside the log: a webhook, if $TIDEGATE_WEBHOOK_URL names one.

The address is a secret (most chats put a token into it): it is never logged. A webhook that does not answer is logged,
and is no one's failure.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from orchestration.incidents import Incident, scrub

VARIABLE = "TIDEGATE_WEBHOOK_URL"
TIMEOUT_S = 5.0


class Undelivered(Exception):
    """The webhook did not take the message. Says why, never where."""


def address() -> str | None:
    """The webhook's URL, if there is one."""
    return os.environ.get(VARIABLE) or None


def post(url: str, incident: Incident, timeout: float = TIMEOUT_S) -> None:
    """Send one incident as JSON. Raises Undelivered."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise Undelivered(f"${VARIABLE} is no http or https address")
    body = scrub(json.dumps(incident.payload(), ensure_ascii=False)).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise Undelivered(f"it answered {error.code}") from None
    except urllib.error.URLError as error:
        raise Undelivered(type(error.reason).__name__ if isinstance(error.reason, Exception) else "no route") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Undelivered(type(error).__name__) from None
