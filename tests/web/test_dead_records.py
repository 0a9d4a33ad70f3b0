"""Dead letters of a group: their pages, and how they are requeued or deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from delayq import NewRecord, Queue, Topic
from delayq.topic_group import Group
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter, token_on
from tests.web.test_actions import fields_of, finished, send
from tests.web.test_messages import words

GROUP = "/main/topics/orders/groups/billing"


@pytest.fixture
def group(redis_server: RedisServer, queue: Queue) -> Iterator[Group]:
    """The group billing of the topic orders, which has two shards, and a queue, from whose page tests take a token."""
    queue.pause()
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        yield topic.group("billing", start="0")


def bury(group: Group, count: int, payload: Any = "x", error: str = "HTTP 503") -> None:
    """Make this many records of the topic dead letters of the group."""
    with Topic("orders", redis=group._executor.client, shards=2) as topic:
        topic.publish_many([NewRecord(payload) for _ in range(count)])
    for record in group.poll("one", count=count):
        group.bury(record, "one", "rejected", error)


def run(client: Client, **asked: Any) -> Any:
    """Send an action, confirm it, and return the answer to the confirmation."""
    confirmation = send(client, f"{GROUP}/dead/confirm", **asked)
    assert confirmation.status_code == 200, words(confirmation.text)
    return client.post(f"{GROUP}/dead/run", data=fields_of(confirmation.text), headers=OWN)


def keys(text: str) -> list[str]:
    return re.findall(r'name="ids" value="([^"]*)"', text)


def test_all_dead_letters_are_listed_a_page_at_a_time(enter: Enter, group: Group, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.dead_records.PAGE", 4)
    bury(group, 11)
    client, path, found = enter(), f"{GROUP}/dead", list[str]()
    pages = 0
    while path:
        text = client.get(path).text
        found, pages = found + keys(text), pages + 1
        path = next((f"{GROUP}/dead{unescape(each)}" for each in re.findall(r'rel="next" href="([^"]*)"', text)), "")
    assert sorted(found) == sorted(f"{each.record.shard}.{each.id}" for each in group.dead())
    assert pages == 3
    assert f'href="{GROUP}/dead">11</a>' in client.get("/main/topics/orders").text


def test_dead_letter_has_a_page_with_its_errors_and_payload(enter: Enter, group: Group):
    bury(group, 1, {"order": "<script>7"}, "HTTP 503: <b>busy")
    client = enter()
    text = client.get(f"{GROUP}/dead").text
    (letter,) = group.dead()
    assert f"{letter.record.id} " in words(text)
    assert "rejected: HTTP 503: <b>busy" in words(text)
    one = client.get(unescape(re.findall(r'href="([^"]*/letters/[^"]*)"', text)[0])).text
    shown = words(one)
    assert '{ "order": "<script>7" }' in shown
    assert "Errors latest first HTTP 503: <b>busy" in shown
    assert "reason rejected" in shown
    assert "last consumer one" in shown
    assert "<script>7" not in text + one


def test_record_of_another_program_shows_its_fields(enter: Enter, group: Group):
    group._executor.client.xadd("delayq:{orders}:topic", {"colour": "red"})
    (record,) = group.poll("one")
    group.bury(record, "one")
    (letter,) = group.dead()
    text = words(enter().get(f"{GROUP}/dead/letters/0.{letter.id}").text)
    assert 'Payload fields of another program, 16 bytes { "colour": "red" }' in text


def test_confirmation_of_selected_dead_letters_lists_their_records(enter: Enter, group: Group):
    bury(group, 2)
    client = enter()
    page = client.get(f"{GROUP}/dead").text
    ticked, whole = keys(page), re.findall(r'<form[^>]* action="([^"]*)"', page)
    assert whole == [f"{GROUP}/dead/confirm"] * 2
    confirmation = client.post(whole[1], data={"csrf": token_on(page), "act": "delete", "ids": ticked}, headers=OWN)
    assert confirmation.status_code == 200
    assert all(letter.record.id in words(confirmation.text) for letter in group.dead())


def test_selected_dead_letters_are_requeued_and_the_others_stay(enter: Enter, group: Group):
    bury(group, 5)
    client = enter()
    chosen = keys(client.get(f"{GROUP}/dead").text)[1:3]
    confirmation = words(send(client, f"{GROUP}/dead/confirm", act="requeue", ids=chosen).text)
    assert "Requeue 2 dead letters of group billing of topic orders 2 selected." in confirmation
    assert group.dead_length() == 5
    job = finished(client, run(client, act="requeue", ids=chosen).headers["location"])
    assert "2 requeued." in job
    assert "On group billing of topic orders , started by local" in job
    assert not {*chosen} & {*keys(client.get(f"{GROUP}/dead").text)}
    assert (group.dead_length(), len(group.fetch_not_acked("two"))) == (3, 2)


def test_selected_dead_letter_that_is_gone_is_reported(enter: Enter, group: Group):
    bury(group, 2)
    client = enter()
    chosen = keys(client.get(f"{GROUP}/dead").text)
    group.delete_dead(group.dead()[:1])
    job = finished(client, run(client, act="delete", ids=chosen).headers["location"])
    assert "1 of 2 deleted. The others have left the dead letters." in job
    assert group.dead_length() == 0


@pytest.mark.parametrize("act", ["requeue", "delete"])
def test_action_on_all_spares_letters_that_died_after_the_confirmation(enter: Enter, group: Group, act: str):
    bury(group, 600)
    client = enter()
    confirmation = send(client, f"{GROUP}/dead/confirm", act=act, all="1")
    assert "600 dead letters." in words(confirmation.text)
    bury(group, 3)
    confirmed = fields_of(confirmation.text) | {"name": "billing"}
    answer = client.post(f"{GROUP}/dead/run", data=confirmed, headers=OWN)
    job = finished(client, answer.headers["location"])
    assert "600 records changed" in job
    assert (group.dead_length(), group.info().unacked) == (3, 600 if act == "requeue" else 0)
    again = client.post(f"{GROUP}/dead/run", data=confirmed, headers=OWN)
    assert again.headers["location"] == answer.headers["location"]


def test_audit_names_the_group_and_the_action(enter: Enter, group: Group):
    bury(group, 2)
    lines: list[Any] = []
    client = enter(audit=lines.append)
    finished(client, run(client, act="requeue", all="1").headers["location"])
    known = {"who": "local", "server": "main", "topic": "orders", "group": "billing", "action": "requeue dead"}
    assert [line["outcome"] for line in lines] == ["began", "done"]
    assert all(line.items() >= (known | {"all": "dead"}).items() for line in lines)
    assert lines[-1]["told"] == "2 requeued."
    assert send(client, f"{GROUP}/dead/confirm", act="requeue").status_code == 400
    assert lines[-1] == known | {"outcome": "refused: no dead letter is selected: select at least one"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"act": "burn", "all": "1"}, "unknown action 'burn'; expected one of requeue, delete"),
        ({"act": "delete"}, "no dead letter is selected: select at least one"),
        ({"act": "delete", "ids": "7"}, "'7' is not the key of a record: reload the list"),
        (
            {"act": "delete", "ids": [f"0.1-{n}" for n in range(101)]},
            "101 dead letters are selected: select",
        ),
    ],
)
def test_invalid_form_changes_nothing(enter: Enter, group: Group, fields: dict[str, Any], expected: str):
    bury(group, 2)
    client = enter()
    for step in ("confirm", "run"):
        answer = send(client, f"{GROUP}/dead/{step}", once="1", **fields)
        assert (answer.status_code, expected in words(answer.text)) == (400, True)
    unsaid = send(client, f"{GROUP}/dead/run", act="delete", all="1", once="1", name="billing")
    assert "lacks the time of its confirmation" in words(unsaid.text)
    unnamed = send(client, f"{GROUP}/dead/run", act="delete", all="1", once="1", until=str(10**15 - 1), name="billin")
    assert "type billing to confirm" in words(unnamed.text)
    assert group.dead_length() == 2


@pytest.mark.usefixtures("group")
def test_group_without_dead_letters_says_so(enter: Enter):
    client = enter()
    assert "No dead letters." in words(client.get(f"{GROUP}/dead").text)
    assert "group billing has no dead letters" in words(
        send(client, f"{GROUP}/dead/confirm", act="delete", all="1").text
    )
    assert client.get(f"{GROUP}/dead/letters/0.1-1").status_code == 404
    assert client.get(f"{GROUP}/dead/letters/7.1-1").status_code == 404
    assert client.get("/main/topics/orders/groups/none/dead").status_code == 404
