import json

import pytest

from tests.orchestration.services import Webhook, free_port
from tidegate.orchestration.alerts.channels import JsonWebhook, Undelivered
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.scrubbing import scrub, scrubbed
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.sql.compile import MissedKey

FAILED = Problem("run 1", "run-failed", "run 1 failed", details={"run_id": "1", "failed_steps": ["land"]})
MESSAGE = Message.begun(FAILED)


def test_a_problem_is_one_json_message(webhook: Webhook):
    JsonWebhook(webhook.url).send(MESSAGE)
    (message,) = webhook.messages
    assert (message["kind"], message["key"], message["state"]) == ("run-failed", "run 1", "open")
    assert message["text"] == "Tidegate: run 1 failed"
    assert (message["run_id"], message["failed_steps"]) == ("1", ["land"])


def test_secrets_of_the_environment_do_not_leave(webhook: Webhook, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLICKS_PASSWORD", "hunter2!")
    problem = Problem("run 1", "run-failed", "denied for reader using hunter2!", details={"said": "hunter2!"})
    JsonWebhook(webhook.url).send(Message.begun(scrubbed(problem)))
    assert "hunter2" not in json.dumps(webhook.messages)
    assert webhook.messages[0]["text"] == "Tidegate: denied for reader using ***"


def test_a_secret_breaks_no_json_and_hides_in_none(webhook: Webhook, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"A_PASSWORD": "1234", "B_TOKEN": "open", "C_SECRET": 'quo"ted\\', "D_TOKEN": "text"}.items():
        monkeypatch.setenv(name, value)
    problem = Problem(
        "run 1234",
        "run-failed",
        'denied: quo"ted\\',
        keys=(MissedKey({"id": 1234, "name": 'quo"ted\\'}, "key-absent@u", "none"),),
        details={"rows": 1234, "reasons": ['1234 and quo"ted\\']},
    )
    JsonWebhook(webhook.url).send(Message.begun(scrubbed(problem)))
    (reported,) = webhook.messages
    assert (reported["state"], reported["key"], reported["rows"]) == ("open", "run 1234", 1234)
    assert reported["text"].startswith("Tidegate: denied: ***")
    assert reported["keys"][0]["key"] == {"id": 1234, "name": "***"}
    assert reported["reasons"] == ["*** and ***"]


def test_short_values_are_left_alone():
    assert scrub("abc", {"A_TOKEN": "a", "PATH": "abc"}) == "abc"
    folders = {"PWD": "/data/lake", "OLDPWD": "/data", "TOKENIZERS_PARALLELISM": "true"}
    assert scrub("tidegate verify /data/lake/a.sql true", folders) == "tidegate verify /data/lake/a.sql true"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/x", "nothing"])
def test_only_http_is_spoken(url: str):
    with pytest.raises(Undelivered, match="no http or https"):
        JsonWebhook(url).send(MESSAGE)


@pytest.mark.parametrize("url", ["http://[T0KEN", "http://[T0KEN]/x", "http://example.com:T0KEN/x"])
def test_an_address_that_cannot_be_read_is_not_reported(url: str):
    with pytest.raises(Undelivered) as refused:
        JsonWebhook(url).send(MESSAGE)
    assert "T0KEN" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_who_does_not_answer_is_reported_without_the_address(webhook: Webhook):
    webhook.status = 503
    with pytest.raises(Undelivered, match="it answered 503") as refused:
        JsonWebhook(webhook.url).send(MESSAGE)
    gone = f"http://127.0.0.1:{free_port()}/hooks/T0KEN"
    with pytest.raises(Undelivered, match="ConnectionRefusedError") as unreachable:
        JsonWebhook(gone).send(MESSAGE)
    for caught in (refused, unreachable):
        assert "T0KEN" not in str(caught.value)
        assert caught.value.__suppress_context__


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_one_that_has_moved_has_not_taken_it(webhook: Webhook, status: int):
    webhook.status, webhook.moved = status, webhook.url
    with pytest.raises(Undelivered, match=f"it answered {status}"):
        JsonWebhook(webhook.url).send(MESSAGE)
