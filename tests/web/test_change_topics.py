"""Creating, moving and destroying groups, deleting and trimming records: confirmations and effects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import NewRecord, Queue, Topic
from delayq.model.actions import DEAD_ACTIONS, GROUP_ACTIONS, RECORD_ACTIONS, Action
from delayq.web.api.table import OPERATIONS
from delayq.web.api.topics import TOPIC as TOPICS
from delayq.web.group_changes import BUTTONS
from delayq.web.pages import change_topics
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter
from tests.web.test_actions import fields_of, finished, send
from tests.web.test_forms import typed, wrong
from tests.web.test_messages import words

TOPIC = "/main/topics/orders"
GROUP = f"{TOPIC}/groups/billing"


@pytest.fixture
def topic(redis_server: RedisServer, queue: Queue) -> Iterator[Topic]:
    """The topic orders with two shards, and a queue, from whose page tests take a token."""
    queue.pause()
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        yield topic


def at(second: int, number: int = 0) -> str:
    """Return an id of a record of 2023."""
    return f"{1_700_000_000_000 + 1000 * second}-{number}"


def publish(topic: Topic, count: int) -> None:
    """Publish a record for each of this many seconds in 2023, to both shards in turn."""
    topic.publish_many([NewRecord({"n": n}, id=at(n)) for n in range(count)])


def confirmed(client: Client, path: str, asked: dict[str, Any], **more: str) -> Any:
    """Send a change, confirm it, and return the answer."""
    confirmation = send(client, f"{path}/confirm", **asked)
    assert confirmation.status_code == 200, words(confirmation.text)
    return client.post(path, data=fields_of(confirmation.text) | more, headers=OWN)


def keys(text: str) -> list[str]:
    return re.findall(r'name="ids" value="([^"]*)"', text)


@pytest.mark.parametrize(
    ("begins", "lag", "expected"),
    [
        ({"where": "end"}, 0, "records published from now on"),
        ({"where": "start", "position": "left over"}, 10, "the first record"),
        ({"where": "id", "position": at(3)}, 6, f"the record after {at(3)}"),
        ({"where": "time", "position": "2023-11-14T22:13:27Z"}, 3, "records published since 2023-11-14 22:13:27 UTC"),
        ({"where": "time", "position": "1000000d"}, 10, "records published since 1970-01-01 00:00:00 UTC"),
    ],
)
def test_group_is_created_at_the_given_position(
    enter: Enter, topic: Topic, begins: dict[str, str], lag: int, expected: str
):
    publish(topic, 10)
    client = enter()
    answer = send(client, f"{TOPIC}/groups", group="billing", **begins)
    assert (answer.status_code, answer.headers["location"]) == (303, GROUP)
    page = words(client.get(GROUP).text)
    assert "Created group billing. It starts from" in page
    assert expected in page
    assert [(each.name, each.lag) for each in topic.groups()] == [("billing", lag)]


def test_topic_names_its_groups_in_trouble(enter: Enter, topic: Topic):
    publish(topic, 3)
    group = topic.group("billing", start="0")
    topic.group("mail")
    (record,) = group.poll("one", count=1)
    group.bury(record, "one")
    page = enter().get(TOPIC).text
    assert "billing dead letters" in words(page)
    assert 'title="The group has 1 dead letter."' in page
    assert "mail 0 0 0 0" in words(page)


def test_lag_chart_covers_the_time_that_the_dashboard_has_counted(
    enter: Enter, topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.topic_snapshot.REMEMBER_SECONDS", 0.0)
    publish(topic, 30)
    group, client = topic.group("billing", start="0"), enter()
    topic.group("mail", start="0")
    assert "Counted by this dashboard while somebody watches, since" in words(client.get(TOPIC).text)
    group.poll("one", count=20)
    table = client.get(TOPIC).text.partition('aria-label="Lag, as a table"')[2].partition("</table>")[0]
    assert re.findall("<th[^>]*>([a-z]+)</th>", table) == ["mail", "billing"]
    assert re.findall("<td>([^<]*)</td>", table) == ["30", "30", "30", "10"]
    assert "Lag" not in words(enter().get("/main/topics").text)


def test_existing_group_keeps_its_position(enter: Enter, topic: Topic):
    publish(topic, 4)
    topic.group("billing", start="0")
    client = enter()
    answer = send(client, f"{TOPIC}/groups", group="billing", where="end")
    assert "Group billing already exists and keeps its position." in words(client.get(answer.headers["location"]).text)
    assert topic.groups()[0].lag == 4


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"group": " ", "where": "end"}, "group", "a group name must not be empty"),
        ({"group": "b", "where": "id", "position": "x"}, "position", "position 'x' is not an id of a record"),
        ({"group": "b", "where": "time", "position": "soon"}, "position", "'soon' is not a duration, such as"),
    ],
)
def test_refused_group_form_comes_back_with_the_reason(
    enter: Enter, topic: Topic, fields: dict[str, str], name: str, expected: str
):
    publish(topic, 1)
    answer = send(enter(), f"{TOPIC}/groups", **fields)
    assert answer.status_code == 400
    assert wrong(answer.text)[0] == name
    assert expected in wrong(answer.text)[1]
    assert '<details class="more" open>' in answer.text
    assert typed(answer.text, "position") == fields.get("position", "")
    assert not topic.groups()


def test_move_first_shows_records_that_are_delivered_again_or_skipped(enter: Enter, topic: Topic):
    publish(topic, 10)
    group = topic.group("billing", start="0")
    group.ack(group.poll("one", count=6))
    client = enter()
    back = words(send(client, f"{GROUP}/move/confirm", where="id", position=at(1)).text)
    assert "It receives 4 records again, acked or not." in back
    assert "skips" not in back
    on = words(send(client, f"{GROUP}/move/confirm", where="end").text)
    assert "It skips 4 records that it has not received yet." in on
    assert group.info().lag == 4
    answer = confirmed(client, f"{GROUP}/move", {"where": "time", "position": "2023-11-14T22:13:22Z"})
    assert "The group continues from records published since 2023-11-14 22:13:22 UTC" in words(client.get(GROUP).text)
    assert (answer.status_code, sorted(each.id for each in group.poll("one"))) == (303, [at(n) for n in range(2, 10)])


def test_long_count_of_a_move_is_cut_and_says_at_least(enter: Enter, topic: Topic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.operations.topics.group_admin.MAX_LAG_CALLS", 1)
    topic.publish_many([NewRecord(n, key="one shard") for n in range(1500)])
    topic.group("billing", start="0")
    text = words(send(enter(), f"{GROUP}/move/confirm", where="end").text)
    assert "It skips at least 1,000 records that it has not received yet." in text


def test_move_sent_twice_moves_once(enter: Enter, topic: Topic):
    publish(topic, 4)
    group = topic.group("billing", start="0")
    group.poll("one")
    client = enter()
    fields = fields_of(send(client, f"{GROUP}/move/confirm", where="start").text)
    client.post(f"{GROUP}/move", data=fields, headers=OWN)
    assert len(group.poll("one")) == 4
    client.post(f"{GROUP}/move", data=fields, headers=OWN)
    assert "Already done." in words(client.get(GROUP).text)
    assert group.info().lag == 0


def test_group_is_destroyed_only_with_its_name(enter: Enter, topic: Topic):
    publish(topic, 4)
    group = topic.group("billing", start="0")
    group.poll("one", count=2)
    client = enter()
    asked = words(send(client, f"{GROUP}/destroy/confirm").text)
    assert "its position, 2 unacked records and 0 dead letters" in asked
    refused = confirmed(client, f"{GROUP}/destroy", {}, name="billin")
    assert (refused.status_code, len(topic.groups())) == (400, 1)
    answer = confirmed(client, f"{GROUP}/destroy", {}, name="billing")
    assert (answer.status_code, answer.headers["location"]) == (303, TOPIC)
    assert "Destroyed group billing." in words(client.get(TOPIC).text)
    assert (topic.groups(), topic.length()) == ([], 4)
    assert send(client, f"{GROUP}/destroy/confirm").status_code == 404


def test_records_are_listed_by_page_even_with_one_id_in_two_shards(enter: Enter, topic: Topic):
    for key in ("a", "d"):  # of two shards
        topic.publish_many([NewRecord(key, id=at(n), key=key) for n in range(30)])
    client, path, found, pages = enter(), TOPIC, list[str](), 0
    while path:
        text = client.get(path).text
        found, pages = found + keys(text), pages + 1
        path = next((f"{TOPIC}{each}" for each in re.findall(r'rel="next" href="([^"]*)"', text)), "")
    assert sorted(found) == sorted(f"{record.shard}.{record.id}" for record in topic.range())
    assert (len(found), len({*found}), pages) == (60, 60, 3)


def test_selected_records_are_deleted(enter: Enter, topic: Topic):
    publish(topic, 5)
    client = enter()
    chosen = keys(client.get(TOPIC).text)[1:3]
    asked = words(send(client, f"{TOPIC}/delete/confirm", ids=chosen).text)
    assert (
        f"Delete 2 records of topic orders They are deleted permanently, for all groups, acked or not. {at(3)} {at(2)}"
        in asked
    )
    topic.delete([record for record in topic.range() if record.id == at(2)])
    confirmed(client, f"{TOPIC}/delete", {"ids": chosen})
    assert "Deleted 1 of 2 records; the others were already gone." in words(client.get(TOPIC).text)
    assert [record.id for record in topic.range()] == [at(0), at(1), at(4)]


@pytest.mark.parametrize(
    ("asked", "drops", "left"),
    [
        ({"how": "length", "keep": "3"}, 4, 6),
        ({"how": "length", "keep": "0"}, 10, 0),
        ({"how": "age", "keep": "2023-11-14T22:13:27Z"}, 7, 3),
    ],
)
def test_trim_first_shows_how_many_records_are_deleted(
    enter: Enter, topic: Topic, asked: dict[str, str], drops: int, left: int
):
    publish(topic, 10)
    topic.group("billing", start="0").poll("one", count=1)
    client = enter()
    text = words(send(client, f"{TOPIC}/trim/confirm", **asked).text)
    assert f"Deletes {drops} records, acked or not." in text
    assert "Group billing has not received 9 of the records yet, and has 1 unacked." in text
    assert confirmed(client, f"{TOPIC}/trim", asked, name="order").status_code == 400
    assert topic.length() == 10
    text = finished(client, confirmed(client, f"{TOPIC}/trim", asked, name="orders").headers["location"])
    assert f"{drops} records changed" in text
    assert "On topic orders , started by local" in text
    assert topic.length() == left


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"how": "length", "keep": "-1"}, "'-1' is not a number of records, 0 or more"),
        ({"how": "length", "keep": "10"}, "no record would be deleted: topic orders keeps the newest 10"),
        ({"how": "age", "keep": "soon"}, "'soon' is not a duration, such as"),
    ],
)
def test_invalid_trim_comes_back_with_the_reason(enter: Enter, topic: Topic, fields: dict[str, str], expected: str):
    publish(topic, 10)
    answer = send(enter(), f"{TOPIC}/trim/confirm", **fields)
    assert (answer.status_code, wrong(answer.text)[0], expected in wrong(answer.text)[1]) == (400, "keep", True)
    assert topic.length() == 10


def test_each_change_and_each_refusal_is_audited(enter: Enter, topic: Topic):
    publish(topic, 10)
    lines: list[Any] = []
    client = enter(audit=lines.append)
    send(client, f"{TOPIC}/groups", group="billing", where="start")
    confirmed(client, f"{GROUP}/move", {"where": "id", "position": at(3)})
    confirmed(client, f"{TOPIC}/delete", {"ids": [keys(client.get(TOPIC).text)[0]]})
    finished(
        client, confirmed(client, f"{TOPIC}/trim", {"how": "length", "keep": "2"}, name="orders").headers["location"]
    )
    confirmed(client, f"{GROUP}/destroy", {}, name="billing")
    known = {"who": "local", "server": "main", "topic": "orders"}
    assert all(line.items() >= known.items() for line in lines)
    assert [(line["action"], line["outcome"]) for line in lines] == [
        ("make group", "done"),
        ("move group", "done"),
        ("delete records", "done"),
        ("trim", "began"),
        ("trim", "done"),
        ("destroy group", "done"),
    ]
    assert lines[1]["position"] == at(3)
    assert send(client, f"{TOPIC}/delete/confirm").status_code == 400
    assert lines[-1] == known | {
        "action": "delete records",
        "outcome": "refused: no record is selected: select at least one",
    }


def test_each_action_on_topics_has_an_operation_and_a_form_and_dangerous_ones_a_confirmation():
    rows = [*GROUP_ACTIONS.values(), *DEAD_ACTIONS.values(), *RECORD_ACTIONS.values()]
    operations = {each.action for each in OPERATIONS if each.acts and each.path.startswith(TOPICS)}
    assert operations - {"publish"} == {each.audited for each in rows}
    routes = {each.name.replace("_", " ") for each in change_topics.ROUTES}
    assert {each.audited for each in rows} - routes == {"requeue dead", "delete dead"}  # they share a form
    assert {f"confirm {each.audited}" for each in rows if each.is_danger} - routes == {"confirm delete dead"}


@pytest.mark.parametrize("action", [each.action for each in BUTTONS], ids=lambda action: action.name)
def test_button_of_a_group_leads_to_its_confirmation(enter: Enter, topic: Topic, action: Action):
    topic.group("billing")
    client = enter()
    assert f"{action.words.verb}…" in words(client.get(GROUP).text)
    asked = words(send(client, f"{GROUP}/{action.name}/confirm").text)
    assert f"{action.words.verb} billing group of topic orders" in asked
    assert action.words.warning in asked
    assert send(client, f"{TOPIC}/groups/none/{action.name}/confirm").status_code == 404


def test_time_ago_is_relative_to_the_server_clock(enter: Enter, topic: Topic):
    publish(topic, 2)
    topic.publish("now")
    client = enter()
    assert "Deletes 2 records" in words(send(client, f"{TOPIC}/trim/confirm", how="age", keep="1d").text)
    send(client, f"{TOPIC}/groups", group="billing", where="time", position="1h")
    assert [group.lag for group in topic.groups()] == [1]
