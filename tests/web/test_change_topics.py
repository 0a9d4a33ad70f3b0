"""Groups are made, moved and destroyed, records deleted and trimmed: what is said before, and what is so after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import NewRecord, Queue, Topic
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter
from tests.web.test_actions import fields_of, finished, send
from tests.web.test_forms import typed, wrong
from tests.web.test_messages import words

TOPIC = "/main/topics/orders"
GROUP = f"{TOPIC}/groups/billing"


@pytest.fixture
def topic(redis_server: RedisServer, queue: Queue) -> Iterator[Topic]:
    """The topic orders, of two shards; and a queue, whose page tests take a token from."""
    queue.pause()
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        yield topic


def at(second: int, number: int = 0) -> str:
    """Return an id of a record of 2023."""
    return f"{1_700_000_000_000 + 1000 * second}-{number}"


def publish(topic: Topic, count: int) -> None:
    """Publish a record for each of so many seconds of 2023, to both shards in turn."""
    topic.publish_many([NewRecord({"n": n}, id=at(n)) for n in range(count)])


def confirmed(client: Client, path: str, asked: dict[str, Any], **more: str) -> Any:
    """Ask for a change, confirm it, and return the answer."""
    confirmation = send(client, f"{path}/confirm", **asked)
    assert confirmation.status_code == 200, words(confirmation.text)
    return client.post(path, data=fields_of(confirmation.text) | more, headers=OWN)


def keys(text: str) -> list[str]:
    return re.findall(r'name="ids" value="([^"]*)"', text)


@pytest.mark.parametrize(
    ("begins", "lag", "told"),
    [
        ({"where": "end"}, 0, "what is published from now on"),
        ({"where": "start", "position": "left over"}, 10, "the first record"),
        ({"where": "id", "position": at(3)}, 6, f"the record behind {at(3)}"),
        ({"where": "time", "position": "2023-11-14T22:13:27Z"}, 3, "published at 2023-11-14 22:13:27 UTC, or later"),
        ({"where": "time", "position": "1000000d"}, 10, "published at 1970-01-01 00:00:00 UTC, or later"),
    ],
)
def test_group_is_made_where_the_form_says(enter: Enter, topic: Topic, begins: dict[str, str], lag: int, told: str):
    publish(topic, 10)
    client = enter()
    answer = send(client, f"{TOPIC}/groups", group="billing", **begins)
    assert (answer.status_code, answer.headers["location"]) == (303, GROUP)
    page = words(client.get(GROUP).text)
    assert "Group billing is made: it begins with" in page
    assert told in page
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


def test_lag_is_drawn_as_far_as_this_dashboard_has_counted_it(
    enter: Enter, topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.topic_snapshot.REMEMBER_SECONDS", 0.0)
    publish(topic, 30)
    group, client = topic.group("billing", start="0"), enter()
    topic.group("mail", start="0")
    assert "Counted by this dashboard while somebody looks, since" in words(client.get(TOPIC).text)
    group.poll("one", count=20)
    table = client.get(TOPIC).text.partition('aria-label="Lag, as a table"')[2].partition("</table>")[0]
    assert re.findall("<th[^>]*>([a-z]+)</th>", table) == ["mail", "billing"]
    assert re.findall("<td>([^<]*)</td>", table) == ["30", "30", "30", "10"]
    assert "Lag" not in words(enter().get("/main/topics").text)


def test_group_that_exists_stays_where_it_is(enter: Enter, topic: Topic):
    publish(topic, 4)
    topic.group("billing", start="0")
    client = enter()
    answer = send(client, f"{TOPIC}/groups", group="billing", where="end")
    assert "Group billing exists: it stays where it is." in words(client.get(answer.headers["location"]).text)
    assert topic.groups()[0].lag == 4


@pytest.mark.parametrize(
    ("fields", "name", "told"),
    [
        ({"group": " ", "where": "end"}, "group", "a group name must not be empty"),
        ({"group": "b", "where": "id", "position": "x"}, "position", "position 'x' is not an id of a record"),
        ({"group": "b", "where": "time", "position": "soon"}, "position", "'soon' is neither a length of time"),
    ],
)
def test_form_of_a_group_comes_back_with_the_reason(
    enter: Enter, topic: Topic, fields: dict[str, str], name: str, told: str
):
    publish(topic, 1)
    answer = send(enter(), f"{TOPIC}/groups", **fields)
    assert answer.status_code == 400
    assert wrong(answer.text)[0] == name
    assert told in wrong(answer.text)[1]
    assert '<details class="more" open>' in answer.text
    assert typed(answer.text, "position") == fields.get("position", "")
    assert not topic.groups()


def test_move_says_first_what_is_handed_out_again_or_skipped(enter: Enter, topic: Topic):
    publish(topic, 10)
    group = topic.group("billing", start="0")
    group.ack(group.poll("one", count=6))
    client = enter()
    back = words(send(client, f"{GROUP}/move/confirm", where="id", position=at(1)).text)
    assert "4 records that it was handed already: it is handed them again, acked or not." in back
    assert "skips" not in back
    on = words(send(client, f"{GROUP}/move/confirm", where="end").text)
    assert "4 records that it was not handed yet: it skips them." in on
    assert group.info().lag == 4
    answer = confirmed(client, f"{GROUP}/move", {"where": "time", "position": "2023-11-14T22:13:22Z"})
    assert "The group goes on with what was published at 2023-11-14 22:13:22 UTC" in words(client.get(GROUP).text)
    assert (answer.status_code, sorted(each.id for each in group.poll("one"))) == (303, [at(n) for n in range(2, 10)])


def test_move_counts_so_many_and_says_that_there_may_be_more(
    enter: Enter, topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.operations.topics.group_admin.MAX_LAG_CALLS", 1)
    topic.publish_many([NewRecord(n, key="one shard") for n in range(1500)])
    topic.group("billing", start="0")
    told = words(send(enter(), f"{GROUP}/move/confirm", where="end").text)
    assert "At least 1,000 records that it was not handed yet: it skips them." in told


def test_move_that_is_sent_twice_moves_once(enter: Enter, topic: Topic):
    publish(topic, 4)
    group = topic.group("billing", start="0")
    group.poll("one")
    client = enter()
    fields = fields_of(send(client, f"{GROUP}/move/confirm", where="start").text)
    client.post(f"{GROUP}/move", data=fields, headers=OWN)
    assert len(group.poll("one")) == 4
    client.post(f"{GROUP}/move", data=fields, headers=OWN)
    assert "That was done already." in words(client.get(GROUP).text)
    assert group.info().lag == 0


def test_group_is_destroyed_by_its_name_alone(enter: Enter, topic: Topic):
    publish(topic, 4)
    group = topic.group("billing", start="0")
    group.poll("one", count=2)
    client = enter()
    asked = words(send(client, f"{GROUP}/destroy/confirm").text)
    assert "its position, its list of 2 unacked and its 0 dead letters" in asked
    refused = confirmed(client, f"{GROUP}/destroy", {}, name="billin")
    assert (refused.status_code, len(topic.groups())) == (400, 1)
    answer = confirmed(client, f"{GROUP}/destroy", {}, name="billing")
    assert (answer.status_code, answer.headers["location"]) == (303, TOPIC)
    assert "Group billing is destroyed." in words(client.get(TOPIC).text)
    assert (topic.groups(), topic.length()) == ([], 4)
    assert send(client, f"{GROUP}/destroy/confirm").status_code == 404


def test_records_are_listed_a_page_at_a_time_also_those_of_one_id_in_two_shards(enter: Enter, topic: Topic):
    for key in ("a", "d"):  # of two shards
        topic.publish_many([NewRecord(key, id=at(n), key=key) for n in range(30)])
    client, path, found, pages = enter(), TOPIC, list[str](), 0
    while path:
        text = client.get(path).text
        found, pages = found + keys(text), pages + 1
        path = next((f"{TOPIC}{each}" for each in re.findall(r'rel="next" href="([^"]*)"', text)), "")
    assert sorted(found) == sorted(f"{record.shard}.{record.id}" for record in topic.range())
    assert (len(found), len({*found}), pages) == (60, 60, 3)


def test_records_that_are_ticked_are_deleted(enter: Enter, topic: Topic):
    publish(topic, 5)
    client = enter()
    chosen = keys(client.get(TOPIC).text)[1:3]
    asked = words(send(client, f"{TOPIC}/delete/confirm", ids=chosen).text)
    assert f"Delete 2 records of topic orders Gone for good, for every group, acked or not. {at(3)} {at(2)}" in asked
    topic.delete([record for record in topic.range() if record.id == at(2)])
    confirmed(client, f"{TOPIC}/delete", {"ids": chosen})
    assert "1 of 2 records deleted." in words(client.get(TOPIC).text)
    assert [record.id for record in topic.range()] == [at(0), at(1), at(4)]


@pytest.mark.parametrize(
    ("asked", "drops", "left"),
    [
        ({"how": "length", "keep": "3"}, 4, 6),
        ({"how": "length", "keep": "0"}, 10, 0),
        ({"how": "age", "keep": "2023-11-14T22:13:27Z"}, 7, 3),
    ],
)
def test_trim_says_first_how_many_go(enter: Enter, topic: Topic, asked: dict[str, str], drops: int, left: int):
    publish(topic, 10)
    topic.group("billing", start="0").poll("one", count=1)
    client = enter()
    told = words(send(client, f"{TOPIC}/trim/confirm", **asked).text)
    assert f"{drops} records would go, acked or not, as of now." in told
    assert "Group billing was not handed 9 of the records yet, and has not acked 1." in told
    assert confirmed(client, f"{TOPIC}/trim", asked, name="order").status_code == 400
    assert topic.length() == 10
    told = finished(client, confirmed(client, f"{TOPIC}/trim", asked, name="orders").headers["location"])
    assert f"{drops} records done" in told
    assert "On topic orders , started by local" in told
    assert topic.length() == left


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"how": "length", "keep": "-1"}, "'-1' is not a number of records, 0 or more"),
        ({"how": "length", "keep": "10"}, "no record would go: topic orders keeps the newest 10"),
        ({"how": "age", "keep": "soon"}, "'soon' is neither a length of time"),
    ],
)
def test_trim_that_cannot_be_meant_comes_back_with_the_reason(
    enter: Enter, topic: Topic, fields: dict[str, str], told: str
):
    publish(topic, 10)
    answer = send(enter(), f"{TOPIC}/trim/confirm", **fields)
    assert (answer.status_code, wrong(answer.text)[0], told in wrong(answer.text)[1]) == (400, "keep", True)
    assert topic.length() == 10


def test_each_change_leaves_a_line_and_each_refusal_too(enter: Enter, topic: Topic):
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
        "outcome": "refused: no record is ticked: tick at least one",
    }


def test_time_counts_back_from_the_server_s_clock(enter: Enter, topic: Topic):
    publish(topic, 2)
    topic.publish("now")
    client = enter()
    assert "2 records would go" in words(send(client, f"{TOPIC}/trim/confirm", how="age", keep="1d").text)
    send(client, f"{TOPIC}/groups", group="billing", where="time", position="1h")
    assert [group.lag for group in topic.groups()] == [1]
