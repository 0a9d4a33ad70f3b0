"""The pages of dead letters, schedules, topics, consumers and servers, and their actions."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections.abc import Iterator
from html import unescape
from types import SimpleNamespace
from urllib.parse import quote

import msgspec
import pytest

from delayq import Consumer, NewRecord, Outgoing, Queue, Topic
from delayq.protocol.operation import execute
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.web.conftest import Enter
from tests.web.test_actions import QUEUE, bury, fields_of, finished, run, send
from tests.web.test_messages import rows, words


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders/of 100%", url=redis_server.url) as topic:
        yield topic


MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
TOPIC = "/main/topics/orders%252Fof%20100%2525"


def test_dead_letters_are_grouped_and_groups_lead_to_their_messages(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(5)])
    for message in queue.receive(5):
        message.reject("no luck", error=f"HTTP 50{message.id[1]}" if message.id < "m3" else "KeyError: 'a'")
    client = enter()
    page = client.get(f"{QUEUE}/dead").text
    groups = re.findall(r'<a href="([^"]*messages\?[^"]*)">(no luck.*?)</a></th>\s*<td[^>]*>(\d+)<', page)
    counts, links = {unescape(name): count for _, name, count in groups}, {name: path for path, name, _ in groups}
    assert counts == {"no luck: HTTP #": "3", "no luck: KeyError: 'a'": "2"}
    assert rows(client.get(unescape(links["no luck: HTTP #"])).text) == ["m0", "m1", "m2"]


def test_group_of_dead_letters_is_requeued(enter: Enter, queue: Queue):
    bury(queue, "a", "b")
    client = enter()
    asked = {"act": "requeue", "all": "1", "state": "dead", "reason": "no luck", "kind": "HTTP #: a"}
    assert "1 scheduled again." in run(client, asked)
    assert {info.id for info in queue.peek("pending")} == {"a"}


def test_grouping_is_limited_and_the_page_says_so(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.meant.MOST_GROUPED", 2)
    bury(queue, "a", "b", "c")
    assert "Causes of the latest 2 of 3 dead letters." in words(enter().get(f"{QUEUE}/dead").text)


def test_queue_without_dead_letters_says_so(enter: Enter, queue: Queue):
    queue.pause()
    assert "No dead letters." in words(enter().get(f"{QUEUE}/dead").text)


def test_schedules_show_when_they_fire_and_their_last_outcome(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.schedules.add("every/hour", "every 1h")
    schedule = queue.schedules.get("every/hour")
    assert schedule is not None
    assert schedule.next_id is not None
    queue.reschedule(schedule.next_id, delay=0)
    (message,) = queue.receive(1)
    message.ack()
    schedule = queue.schedules.get("every/hour")
    assert schedule is not None
    text = words(enter().get(f"{QUEUE}/schedules").text)
    assert schedule.next_at is not None
    assert f"every/hour Every 1h {schedule.next_at:%Y-%m-%d %H:%M:%S}" in text
    assert "1 ok" in text


def test_schedules_show_their_jitter_end_and_completion(enter: Enter, queue: Queue):
    end = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    queue.schedules.add("later", "@hourly", end=end, jitter=90)
    queue.schedules.add("over", "@hourly", end=end.replace(year=2020))
    times = [f"{slot.at:%Y-%m-%d %H:%M:%S}" for slot in queue.schedules.next(3)]
    text = words(enter().get(f"{QUEUE}/schedules").text)
    assert f"later Every hour, UTC @hourly jitter 1m 30s until 2030-01-01 00:00:00 {times[0]}" in text
    assert all(time in text for time in times)
    assert "over Every hour, UTC @hourly until 2020-01-01 00:00:00 finished" in text


def test_schedule_is_paused_resumed_and_run_once_per_form(enter: Enter, queue: Queue):
    queue.schedules.add("every/hour", "every 1h", {"a": 1})
    client, path = enter(), f"{QUEUE}/schedules/every%252Fhour"
    assert send(client, path, act="pause", once="1").headers["location"] == f"{QUEUE}/schedules"
    paused = queue.schedules.get("every/hour")
    assert paused is not None
    assert paused.paused
    send(client, path, act="resume", once="1")
    resumed = queue.schedules.get("every/hour")
    assert resumed is not None
    assert not resumed.paused
    first = client.get(send(client, path, act="run", once="1").headers["location"]).text
    again = client.get(send(client, path, act="run", once="1").headers["location"]).text
    assert "every/hour was sent now, as message" in words(first)
    assert "Already done." in words(again)
    assert [message.payload for message in queue.receive(10)] == [{"a": 1}]


def test_last_outcome_of_a_schedule_includes_run_now(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.schedules.add("every/hour", "every 1h")
    client = enter()
    send(client, f"{QUEUE}/schedules/every%252Fhour", act="run", once="1")
    (message,) = queue.receive(1)
    message.ack()
    page = client.get(f"{QUEUE}/schedules").text
    assert unescape(re.findall(r'<a href="([^"]*)">ok</a>', page)[0]).endswith(
        quote(message.id.replace("/", "%2F"), safe="@")
    )


def test_missing_schedule_is_reported(enter: Enter, queue: Queue):
    queue.pause()
    client = enter()
    assert send(client, f"{QUEUE}/schedules/none", act="pause", once="1").status_code == 404
    assert send(client, f"{QUEUE}/schedules/none", act="run", once="2").status_code == 400
    assert send(client, f"{QUEUE}/schedules/none", act="explode", once="3").status_code == 400
    assert "No schedules." in words(client.get(f"{QUEUE}/schedules").text)


def test_consumers_show_where_they_run_and_what_they_hold(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.operations.presence.SECONDS", 0.05)
    queue.send("x", id="held/1")
    go = threading.Event()
    consumer = Consumer(queue, lambda _: go.wait(120), concurrency=3)
    consumer.start()
    try:
        assert eventually(lambda: any(each.holds for each in queue.consumers()))
        (info,) = queue.consumers()
        text = words(enter().get(f"{QUEUE}/consumers").text)
    finally:
        go.set()
        consumer.stop()
    assert f"{info.name} {info.host}, process {info.pid} ● alive" in text
    assert re.search(
        rf"{re.escape(info.version)} 3 0 0 held/1 attempt 1, for [\d.]+m?s, since {MOMENT} , lease until {MOMENT} in",
        text,
    )


def test_consumers_of_a_server_include_all_its_queues(
    enter: Enter, queue: Queue, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.operations.presence.SECONDS", 0.05)
    monkeypatch.setattr("delayq.web.pages.consumers.MOST_HELD_OF_QUEUE", 1)
    queue.send_many([Outgoing(n, id=f"held/{n}") for n in range(2)])
    go = threading.Event()
    with Queue("reports/a", url=redis_server.url) as other:
        consumers = [Consumer(each, lambda _: go.wait(120), concurrency=2) for each in (queue, other)]
        for consumer in consumers:
            consumer.start()
        try:
            assert eventually(lambda: any(each.holds_count == 2 for each in queue.consumers()))
            assert eventually(lambda: bool(other.consumers()))
            page = enter().get("/main/consumers").text
        finally:
            go.set()
            for consumer in consumers:
                consumer.stop()
    text = words(page)
    assert re.search(rf"emails ● alive 0 0 held/\d attempt 1, for \S+, since {MOMENT} , lease until {MOMENT} in", text)
    assert "and 1 more" in text
    assert "reports/a ● alive 0 0 nothing" in text
    assert 'href="/main/queues/reports%252Fa/consumers"' in page


def test_settled_message_of_a_consumer_shows_no_lease(enter: Enter, queue: Queue):
    queue.send("x", id="held")
    (message,) = queue.receive(1)
    holds = [[message.id, int(time.time() * 1000), 1], ["gone", int(time.time() * 1000), 2]]
    document = {"host": "worker-1", "pid": 1, "version": "", "age": 0, "concurrency": 1, "handled": 0, "failed": 0}
    note = queue._context.shards[0].heartbeat(
        "worker", msgspec.json.encode(document | {"holds": holds, "count": 2}), {}
    )
    queue._executor.execute(execute(note))
    text = words(enter().get(f"{QUEUE}/consumers").text)
    assert re.search(rf"held attempt 1, for \S+, since {MOMENT} , lease until {MOMENT} in", text)
    assert re.search(rf"gone attempt 2, for \S+, since {MOMENT} , already settled", text)


def test_server_without_a_consumer_says_so(enter: Enter, queue: Queue):
    queue.pause()
    assert "No queue had a consumer in the last hour." in words(enter().get("/main/consumers").text)


def test_program_that_receives_is_a_consumer_without_counts(enter: Enter, queue: Queue):
    queue.send("x", id="taken")
    assert len(queue.receive(1)) == 1
    assert eventually(lambda: bool(queue.consumers()))
    client = enter()
    text = words(client.get(f"{QUEUE}/consumers").text)
    assert "● alive" in text
    assert "– – – uses receive, which does not report what it holds or has handled" in text
    assert "1 queue, none in trouble" in words(client.get("/").text)


def test_queue_without_a_consumer_says_so(enter: Enter, queue: Queue):
    queue.pause()
    assert "No consumers in the last hour" in words(enter().get(f"{QUEUE}/consumers").text)


def test_topics_lead_to_their_groups_and_unacked_records(enter: Enter, topic: Topic):
    group = topic.group("billing/<b>", start="0")
    for number in range(5):
        topic.publish({"n": number})
    records = group.poll("one", count=3)
    client = enter()
    page = client.get("/main/topics").text
    assert "orders/of 100% 5 1 2 3 0" in words(page)
    assert unescape(re.findall(r'href="(/main/topics/[^"]*)"', page)[0]) == TOPIC
    page = client.get(TOPIC).text
    assert "billing/<b> 2 3 0 1" in words(page)
    assert '{"n":4}' in words(page)
    text = words(client.get(unescape(re.findall(r'href="([^"]*/groups/[^"]*)"', page)[0])).text)
    assert "Lag 2 Unacked 3 Dead 0 Consumers 1" in text
    assert all(record.id in text for record in records)


def test_breadcrumbs_lead_from_a_group_to_its_topic_and_server(enter: Enter, topic: Topic):
    topic.group("billing")
    client = enter()
    page = client.get(f"{TOPIC}/groups/billing").text
    trail = page.split('aria-label="You are here">')[1].split("</nav>")[0]
    assert words("<main" + trail) == "Queues / Topics / orders/of 100% / billing"
    for path in re.findall('href="([^"]*)"', trail):
        assert client.get(unescape(path)).status_code == 200


def test_topics_in_trouble_name_their_groups_and_say_why(enter: Enter, topic: Topic):
    group = topic.group("billing/<b>", start="0")
    topic.group("idle")
    topic.publish("x")
    client = enter()
    text = words(client.get("/main/topics").text)
    assert "orders/of 100% billing/<b>: no consumer idle: no consumer 1 2" in text
    (record,) = group.poll("one")
    group.bury(record, "one")
    topic.group("idle").poll("one")
    text = words(client.get("/main/topics").text)
    assert "orders/of 100% billing/<b>: dead letters 1 2 0 1 1" in text


def test_partly_counted_lag_is_shown_as_such(enter: Enter, topic: Topic):
    group = topic.group("billing")
    second = topic.publish_many([NewRecord(bytes(1_000_000)) for _ in range(14)])[1]
    group.set_position(second.id)
    client = enter()
    assert "no consumer 14 1 at least 10 0" in words(client.get("/main/topics").text)
    assert "billing no consumer at least 10 0 0" in words(client.get(TOPIC).text)


def test_consumer_claims_unacked_records_of_another(enter: Enter, queue: Queue, topic: Topic):
    queue.pause()
    group = topic.group("billing", start="0")
    topic.publish("x")
    group.poll("one")
    client, path = enter(), f"{TOPIC}/groups/billing"
    new = {"consumer": "two", "new": "1"}
    text = client.get(send(client, f"{path}/claim", **new, idle="0s", once="1").headers["location"]).text
    assert "Claimed 1 record for two" in words(text)
    assert [(each.consumer, each.deliveries) for each in group.unacked()] == [("two", 2)]
    again = client.get(send(client, f"{path}/claim", consumer="two", idle="0s", once="1").headers["location"]).text
    assert "Already done." in words(again)
    later = client.get(send(client, f"{path}/claim", consumer="two", idle="1h", once="2").headers["location"]).text
    assert "No record has been unacked for that long." in words(later)
    assert send(client, f"{path}/claim", consumer="", idle="1h", once="3").status_code == 400


def test_claim_for_an_unknown_consumer_comes_back(enter: Enter, queue: Queue, topic: Topic):
    queue.pause()
    group = topic.group("billing", start="0")
    topic.publish("x")
    group.poll("one")
    client, path = enter(), f"{TOPIC}/groups/billing/claim"
    answer = send(client, path, consumer="tow", idle="0s", once="1")
    assert (answer.status_code, "group billing has no consumer tow: choose an existing one" in words(answer.text)) == (
        400,
        True,
    )
    assert 'name="consumer" aria-invalid="true"' in answer.text
    assert [each.name for each in group.consumers()] == ["one"]
    assert send(client, path, consumer="tow", idle="0s", once="1", new="1").status_code == 303
    assert [each.consumer for each in group.unacked()] == ["tow"]


@pytest.mark.parametrize("path", ["/main/topics/none", f"{TOPIC}/groups/none", "/main/jobs/none", "/none/server"])
def test_missing_things_are_not_found(enter: Enter, topic: Topic, path: str):
    topic.publish("x")
    answer = enter().get(path)
    assert answer.status_code == 404
    assert re.search(" has no |There is no such job", words(answer.text))


def test_server_without_topics_or_queues_says_so(enter: Enter):
    client = enter()
    assert "No topics yet" in words(client.get("/main/topics").text)
    assert "No queues." in words(client.get("/main/server").text)
    assert "No jobs since the dashboard started" in words(client.get("/main/jobs").text)


def test_server_page_shows_details_and_dangers(enter: Enter, queue: Queue):
    queue.pause()
    text = words(enter().get("/main/server").text)
    assert "the server keeps nothing on disk" in text
    assert f"version {queue._executor.client.info()['redis_version']} memory" in text
    assert "when memory is full noeviction" in text
    assert "clock same as this machine" in text


@pytest.mark.parametrize(("ahead", "expected"), [(3600, "ahead of"), (-3600, "behind")])
def test_server_with_a_wrong_clock_says_so(enter: Enter, monkeypatch: pytest.MonkeyPatch, ahead: int, expected: str):
    monkeypatch.setattr("delayq.operations.doctor.server.time", SimpleNamespace(time=lambda: time.time() - ahead))
    assert f" {expected} this machine" in words(enter().get("/main/server").text)


def test_doctor_examines_a_queue_and_shows_its_findings(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    client = enter()
    healthy = send(client, f"{QUEUE}/examine", once="1")
    assert "Examine queue emails" in finished(client, healthy.headers["location"])
    queue._executor.client.delete("delayq:{emails}:msg:m")
    found = finished(client, send(client, f"{QUEUE}/examine", once="2").headers["location"])
    assert "error: message m is in pending, but its payload is gone" in found


def test_job_is_listed(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="cancel", ids=["m"], state="pending").text)
    send(client, f"{QUEUE}/run", **confirmed)
    assert "Cancel 1 message queue emails local" in words(client.get("/main/jobs").text)
