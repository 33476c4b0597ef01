import json

import pytest

from orchestration.alerts import Incident, Message, scrub
from orchestration.alerts.webhook import Undelivered, address, post
from tests.orchestration.services import Webhook, free_port

INCIDENT = Message(Incident("run 1", "run-failed", "run 1 failed", details={"run_id": "1", "failed_steps": ["land"]}))


def test_an_incident_is_one_json_message(webhook: Webhook):
    post(webhook.url, INCIDENT)
    (message,) = webhook.messages
    assert (message["kind"], message["key"], message["state"]) == ("run-failed", "run 1", "open")
    assert message["text"] == "Tidegate: run 1 failed"
    assert (message["run_id"], message["failed_steps"]) == ("1", ["land"])


def test_the_address_comes_from_the_environment(webhook: Webhook, monkeypatch: pytest.MonkeyPatch):
    assert address() == webhook.url
    monkeypatch.delenv("TIDEGATE_WEBHOOK_URL")
    assert address() is None


def test_secrets_of_the_environment_do_not_leave(webhook: Webhook, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLICKS_PASSWORD", "hunter2!")
    incident = Incident("run 1", "run-failed", "denied for reader using hunter2!", details={"said": "hunter2!"})
    post(webhook.url, Message(incident))
    assert "hunter2" not in json.dumps(webhook.messages)
    assert webhook.messages[0]["text"] == "Tidegate: denied for reader using ***"


def test_short_values_are_left_alone():
    assert scrub("abc", {"A_TOKEN": "a", "PATH": "abc"}) == "abc"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "nothing"])
def test_only_http_is_spoken(url: str):
    with pytest.raises(Undelivered, match="no http or https"):
        post(url, INCIDENT)


def test_who_does_not_answer_is_reported_without_the_address(webhook: Webhook):
    webhook.status = 503
    with pytest.raises(Undelivered, match="it answered 503") as refused:
        post(webhook.url, INCIDENT)
    gone = f"http://127.0.0.1:{free_port()}/hooks/T0KEN"
    with pytest.raises(Undelivered, match="ConnectionRefusedError") as unreachable:
        post(gone, INCIDENT)
    for caught in (refused, unreachable):
        assert "T0KEN" not in str(caught.value)
        assert caught.value.__suppress_context__
