"""Channels against a real mail server and a real HTTP endpoint on loopback."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import apprise
import pytest

from tests.orchestration.services import ROOT, MailServer, Webhook, free_port
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.channels import _SENDING, AppriseChannel, Undelivered, channels, secrets_of
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.scrubbing import scrubbed
from tidegate.pipelines.commands import Commands, resolving
from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.sql.compile import MissedKey

DOCUMENTED = re.compile(r'\w+://[^\s"]*\$\{[^\s"]*')
INVOKE = "triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=d-u-m-m-y"
DIRECT = "/powerautomate/automations/direct"
DUMMIES = {
    "MAIL_USER": "ops",
    "MAIL_PASSWORD": "d-u-m-m-y",
    "SLACK_TOKEN": "T00000000/B00000000/dummydummydummydummydumm",
    "SLACK_BOT": "xoxb-0000000000-0000000000-dummydummydummydummydumm",
    "TEAMS": f"https://prod-00.westus.logic.azure.com:443/workflows/0a1b2c/{INVOKE}",
    "TEAMS_NOW": f"https://default0a.1b.environment.api.powerplatform.com:443{DIRECT}/workflows/0a1b2c/{INVOKE}",
}
PROBLEM = Problem(
    key="gate-held lake x 1/3",
    kind="gate-held",
    title="the gate holds epoch 3 of clicks/x (812 rows).",
    pipeline="clicks",
    text=("The target is unchanged.",),
    counts={"key-absent@user_info": 38},
    keys=(MissedKey({"user_id": 9}, "key-absent@user_info", "none up to epoch 7, nor since"),),
    positions={"user_info": "epoch 1/9, binlog.000003:4711"},
    next=resolving("x"),
)
BEGUN = Message.begun(PROBLEM, Commands(Path("clicks.sql")), "http://127.0.0.1:3000/runs/5d0f")


def test_a_mail_has_all_that_a_person_needs():
    with MailServer() as mail:
        (channel,) = channels(AlertOptions(), {"TIDEGATE_ALERT_URLS": mail.url})
        channel.send(BEGUN)
        assert mail.subjects() == ["Tidegate: the gate holds epoch 3 of clicks/x (812 rows)."]
        assert [str(sent["To"]) for sent in mail.mails] == ["ops@example.com"]
        text = mail.text("the gate holds")
    for part in (
        "The target is unchanged.",
        "pipeline: clicks",
        "38 the key is not in the table (user_info)",
        "user_id = 9",
        "none up to epoch 7",
        "user_info: epoch 1/9, binlog.000003:4711",
        "http://127.0.0.1:3000/runs/5d0f",
        "next: tidegate release clicks.sql x",
    ):
        assert part in text


def test_a_resolved_message_says_so_first():
    with MailServer() as mail:
        (channel,) = channels(AlertOptions(), {"TIDEGATE_ALERT_URLS": mail.url})
        channel.send(Message.ended(PROBLEM, 600_000))
        assert mail.subjects() == ["Tidegate: resolved after 10 min: the gate holds epoch 3 of clicks/x (812 rows)."]
        assert "Over: " in mail.text("resolved")


def test_apprise_and_the_webhook_stand_side_by_side():
    with Webhook() as hook, Webhook() as other:
        json_url = other.url.replace("http://", "json://")
        found = channels(AlertOptions(channels=("${CHAT}",)), {"CHAT": json_url, "TIDEGATE_WEBHOOK_URL": hook.url})
        assert [channel.name for channel in found] == ["channel 1 (json)", "webhook"]
        for channel in found:
            channel.send(BEGUN)
        (reported,), (apprise,) = hook.messages, other.messages
    assert reported["keys"][0]["key"] == {"user_id": 9}
    assert reported["next"] == ["tidegate release clicks.sql x", "tidegate discard clicks.sql x"]
    assert "the gate holds epoch 3" in apprise["title"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mailto://ops:channel-secret@mail.example.com", "mailto://ops:channel-secret@mail.example.com"),
        ("mailto://ops:channel-secret@mail.example.com", "the user ops with channel-secret"),
        ("mailto://ops:channel%2Fsecret@mail.example.com", "the user ops with channel/secret"),
        ("mailto://mail.example.com?user=ops&pass=channel%20secret", "the user ops with channel secret"),
        ("mailto://mail.example.com?user=ops&password=channel+secret", "the user ops with channel secret"),
        ("json://example.com/x?token=channel-secret&to=a", "the user ops with channel-secret"),
    ],
)
def test_secrets_of_channels_stand_in_no_message(address: str, said: str):
    problem = Problem("run 1", "run-failed", f"denied for {said}")
    with MailServer() as mail:
        known = {"TIDEGATE_ALERT_URLS": f"{mail.url} {address}"}
        first, _ = channels(AlertOptions(), known)
        first.send(Message.begun(scrubbed(problem, secrets_of(AlertOptions(), known))))
        text = mail.text("denied for") + mail.subjects()[0]
    assert "***" in text
    assert not any(word in text for word in ("channel-secret", "channel/secret", "channel secret"))


def test_loggers_are_quiet_while_a_thread_sends_for_that_thread_alone(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    before = _SENDING.set(True)
    logging.getLogger("apprise").warning("an address")
    other = threading.Thread(target=logging.getLogger("requests").warning, args=("another's",))
    other.start()
    other.join()
    _SENDING.reset(before)
    logging.getLogger("apprise").warning("all is well")
    assert [record.message for record in caplog.records] == ["another's", "all is well"]


@pytest.mark.parametrize(("scheme", "service"), [("mailtos", "NotifyEmail"), ("slack", "NotifySlack")])
def test_apprise_reads_the_addresses_of_the_manual(scheme: str, service: str):
    manual = DOCUMENTED.findall((ROOT / "docs" / "alerts.md").read_text())
    addresses = {address for address in manual if address.startswith(f"{scheme}://")}
    assert addresses
    assert {service_of(address) for address in addresses} == {service}


@pytest.mark.parametrize(
    ("address", "service"),
    [
        ("slack://${SLACK_BOT}/#data", "NotifySlack"),
        ("${TEAMS}", "NotifyWorkflows"),
        ("${TEAMS_NOW}", "NotifyWorkflows"),
    ],
)
def test_apprise_reads_what_slack_and_teams_give(address: str, service: str):
    assert service_of(address) == service


def service_of(address: str) -> str:
    """The plug-in that takes an address, as a channel has it; nothing is sent."""
    (channel,) = channels(AlertOptions(channels=(address,)), DUMMIES)
    assert isinstance(channel, AppriseChannel)
    client = apprise.Apprise()
    assert client.add(channel.url)
    return type(client[0]).__name__


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense-T0KEN", "Apprise cannot read its address"),
        ("unknown://T0KEN", "Apprise cannot read its address"),
        ("json://user:hunter2@127.0.0.1:{port}/T0KEN", "it cannot be reached"),
        ("mailto://127.0.0.1:{port}?from=a@example.com&to=T0KEN@example.com", "it cannot be reached"),
    ],
)
def test_who_does_not_take_it_is_named_without_the_address(url: str, why: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    (channel,) = channels(AlertOptions(), {"TIDEGATE_ALERT_URLS": url.format(port=free_port())})
    with pytest.raises(Undelivered, match=why) as refused:
        channel.send(BEGUN)
    for shown in (str(refused.value), channel.name, repr(channel), caplog.text):
        assert "T0KEN" not in shown
        assert "hunter2" not in shown


def test_a_variable_that_is_not_set_is_a_channel_that_does_not_answer():
    (channel,) = channels(AlertOptions(channels=("slack://${SLACK_TOKEN}/#data",)), {})
    with pytest.raises(Undelivered, match="the environment has no SLACK_TOKEN"):
        channel.send(BEGUN)
