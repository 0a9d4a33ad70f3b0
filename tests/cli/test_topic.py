"""delayq topic: records and groups on the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import NewRecord, Queue, Topic
from tests.cli.conftest import Invoke, Start
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def topic(server: RedisServer) -> Iterator[Topic]:
    """The topic orders, which most commands here use."""
    with Topic("orders", url=server.url) as topic:
        yield topic


def publish(topic: Topic, count: int) -> list[str]:
    """Publish numbers with known ids."""
    records = [NewRecord(number, id=f"{1000 + number}-0") for number in range(count)]
    return [each.id for each in topic.publish_many(records)]


def printed(invoke: Invoke, *words: str) -> list[Any]:
    """The JSON documents that a command prints."""
    result = invoke("topic", *words, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(invoke: Invoke, *words: str, code: int = 2) -> str:
    """The error of a command that does nothing."""
    result = invoke("topic", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    return str(result.stderr)


def test_record_is_published_as_written_with_its_headers(invoke: Invoke, topic: Topic):
    (done,) = printed(invoke, "publish", "orders", '{"order": 1.10}', "-H", "country=at", "--id", "5-1")
    (record,) = topic.range()
    assert (done["id"], record.id, record.body, record.headers) == ("5-1", "5-1", b'{"order": 1.10}', {"country": "at"})
    assert "published" in invoke("topic", "publish", "orders", "-", input="hello\n").stdout
    assert topic.range()[1].payload == "hello"


def test_publishing_keeps_a_maximum_length(invoke: Invoke, topic: Topic):
    publish(topic, 10)
    printed(invoke, "publish", "orders", "x", "--max-length", "3", "--exact")
    assert topic.length() == 3


def test_delayed_record_is_cancelled_once(invoke: Invoke, topic: Topic):
    assert (
        "delayed later in orders" in invoke("topic", "publish", "orders", "x", "--delay", "1h", "--id", "later").stdout
    )
    assert "unchanged" in invoke("topic", "publish", "orders", "x", "--delay", "1h", "--id", "later").stdout
    assert topic.length() == 0
    assert printed(invoke, "cancel", "orders", "later") == [{"id": "later", "cancelled": True}]
    assert "topic orders has no delayed record 'later'" in refused(invoke, "cancel", "orders", "later", code=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["publish", "orders"], "give PAYLOAD"),
        (["publish", "orders", "x", "--exact"], "--exact needs --max-length"),
        (
            ["publish", "orders", "x", "--delay", "1s", "--at", "2026-01-01T00:00Z"],
            "give either --delay or --at, not both",
        ),
        (["publish", "orders", "x", "--id", "five"], "is not an id of a record"),
        (["publish", "or{d}ers", "x"], "topic name"),
        (["read", "orders", "--from", "yesterday"], "is not an id of a record"),
        (["read", "orders", "--from", "$"], "is not an id of a record"),
        (["read", "orders", "--ack"], "need GROUP"),
        (["read", "orders", "g"], "GROUP needs --consumer"),
        (["read", "orders", "g", "--consumer", "c", "--from", "0"], "leave out --from, --to and --reverse with GROUP"),
        (["read", "orders", "g", "--consumer", "c", "--own", "--wait", "1s"], "leave out --wait with --own"),
        (["tail", "orders", "--from", "+"], "is not an id of a record"),
        (["unacked", "orders", "g", "--clear-ghosts", "--idle", "1s"], "which checks all records"),
        (["claim", "orders", "g", "c", "--max-deliveries", "0"], "0 is not in the range"),
        (["trim", "orders"], "give one of --max-length, --from and --acked"),
        (["trim", "orders", "--acked", "--max-length", "1"], "give one of --max-length, --from and --acked"),
        (["trim", "orders", "--acked", "--exact"], "--acked is always exact"),
        (["trim", "orders", "--from", "-"], "is not an id of a record"),
        (["destroy", "orders", "g"], "give --yes"),
        (["group", "create", "orders", ""], "must not be empty"),
        (["group", "move", "orders", "g", "there"], "is not an id of a record"),
        (["group", "ack", "orders", "g", "x"], "is not an id of a record"),
        (["group", "requeue", "orders", "g"], "give either IDs of dead letters, or --all"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(words: list[str], why: str, invoke: Invoke, topic: Topic):
    topic.group("g", start="0")
    (id_,) = publish(topic, 1)
    assert why in " ".join(refused(invoke, *words).split())
    assert [each.id for each in topic.range()] == [id_]
    assert [(each.name, each.unacked, each.lag) for each in topic.groups()] == [("g", 0, 1)]


@pytest.mark.parametrize(
    "words",
    [
        ["read", "orders", "nobody", "--consumer", "c"],
        ["groups", "orders", "nobody"],
        ["unacked", "orders", "nobody"],
        ["unacked", "orders", "nobody", "--clear-ghosts"],
        ["claim", "orders", "nobody", "c"],
        ["destroy", "orders", "nobody", "--yes"],
        ["group", "move", "orders", "nobody", "0"],
        ["group", "remove-consumer", "orders", "nobody", "c"],
        ["group", "ack", "orders", "nobody", "1-0"],
        ["group", "dead", "orders", "nobody"],
        ["group", "requeue", "orders", "nobody", "--all"],
    ],
)
def test_unknown_group_is_not_created(words: list[str], invoke: Invoke, topic: Topic):
    publish(topic, 1)
    assert "has no group" in refused(invoke, *words, code=1)
    assert topic.groups() == []


def test_file_is_published_line_by_line(invoke: Invoke, topic: Topic, tmp_path: Path):
    lines = [json.dumps({"payload": number, "headers": {"n": number}}) for number in range(1200)]
    later = json.dumps({"payload": "later", "delay": "1h", "id": "later"})
    (tmp_path / "records.jsonl").write_text("\n".join([*lines, "", later]))
    (done,) = printed(invoke, "publish", "orders", "--file", "records.jsonl")
    assert done == {"topic": "orders", "file": "records.jsonl", "published": 1201}
    assert [each.payload for each in topic.range(count=2000)] == list(range(1200))
    assert topic.cancel("later")


@pytest.mark.parametrize(
    "wrong",
    [
        "nonsense",
        '{"payload": 1, "id": "x"}',
        '{"payload": 1, "size": 1}',
        '{"payload": 1, "delay": "soon"}',
        '{"payload": 1, "delay": 1e18}',
    ],
)
def test_wrong_line_is_named_and_those_before_it_are_published(
    wrong: str, invoke: Invoke, topic: Topic, tmp_path: Path
):
    (tmp_path / "records.jsonl").write_text(f'{{"payload": 1}}\n{{"payload": 2}}\n{wrong}\n{{"payload": 4}}\n')
    assert "records.jsonl, line 3: " in refused(invoke, "publish", "orders", "--file", "records.jsonl")
    assert [each.payload for each in topic.range()] == [1, 2]


def test_lines_with_ids_out_of_order_are_named(invoke: Invoke, topic: Topic, tmp_path: Path):
    publish(topic, 3)
    (tmp_path / "records.jsonl").write_text('{"payload": 1, "id": "5-0"}\n{"payload": 2, "id": "6-0"}\n')
    said = refused(invoke, "publish", "orders", "--file", "records.jsonl", code=1)
    assert "lines 1 to 2: record id 5-0 does not come after 1002-0" in said
    assert topic.length() == 3


def test_records_are_read_between_positions_and_backwards(invoke: Invoke, topic: Topic):
    publish(topic, 5)

    def payloads(*words: str) -> list[int]:
        return [each["payload"] for each in printed(invoke, "read", "orders", *words)]

    assert payloads("--from", "1001-0", "--to", "1003") == [1, 2, 3]
    assert payloads("--from", "(1001-0", "--limit", "2") == [2, 3]
    assert payloads("--reverse", "--limit", "2") == [4, 3]
    assert payloads("--from", "1970-01-01T00:00:01.003Z") == [3, 4]
    assert "1004-0" in invoke("topic", "read", "orders").stdout
    assert "no record" in invoke("topic", "read", "orders", "--from", "2000").stderr


def test_records_of_any_kind_are_printed(invoke: Invoke, topic: Topic):
    topic.publish(b"\xff\x1b[2J", id="1-0")
    client: Any = topic._executor.client
    client.xadd(topic._context.shards[0].keys.stream, {"name": "value\x1b"}, "2-0")
    client.xadd(topic._context.shards[0].keys.stream, {"e": "no envelope"}, "3-0")
    documents = printed(invoke, "read", "orders")
    assert documents[0]["payload_base64"] == "/xtbMko="
    assert documents[1]["fields"] == {"name": "value\x1b"}
    assert documents[2]["fields"] == {"e": "no envelope"}
    shown = invoke("topic", "read", "orders").stdout
    assert "\x1b" not in shown
    assert "name=value" in shown


def test_group_polls_acks_and_rereads_what_it_holds(invoke: Invoke, topic: Topic):
    assert printed(invoke, "group", "create", "orders", "mail", "--start", "0") == [{"group": "mail", "created": True}]
    assert printed(invoke, "group", "create", "orders", "mail") == [{"group": "mail", "created": False}]
    publish(topic, 3)
    poll = ["read", "orders", "mail", "--consumer", "m-1"]
    assert [each["payload"] for each in printed(invoke, *poll, "--limit", "2")] == [0, 1]
    assert [each["payload"] for each in printed(invoke, *poll, "--own", "--ack")] == [0, 1]
    assert [each["payload"] for each in printed(invoke, *poll, "--ack", "--wait", "1s")] == [2]
    assert printed(invoke, *poll, "--wait", "10ms") == []
    assert topic.group("mail").unacked() == []


def test_ids_are_acked_and_those_not_unacked_are_counted(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    first, second = publish(topic, 2)
    group.poll("m-1", 1)
    assert printed(invoke, "group", "ack", "orders", "mail", first) == [{"acked": 1}]
    result = invoke("topic", "group", "ack", "orders", "mail", first, second)
    assert result.exit_code == 1
    assert "not acked: 2 of 2" in result.stderr


def test_groups_and_their_consumers_are_listed(invoke: Invoke, topic: Topic):
    topic.group("mail", start="0")
    publish(topic, 3)
    topic.group("mail").poll("m-1", 2)
    topic.group("audit", start="0")
    assert printed(invoke, "groups", "orders") == [
        {"name": "audit", "consumers": 0, "unacked": 0, "lag": 3, "position": "0-0", "at_least": False, "dead": 0},
        {"name": "mail", "consumers": 1, "unacked": 2, "lag": 1, "position": "1001-0", "at_least": False, "dead": 0},
    ]
    ((consumer),) = printed(invoke, "groups", "orders", "mail")
    assert (consumer["name"], consumer["unacked"]) == ("m-1", 2)
    assert consumer["idle"] >= 0
    assert "audit" in invoke("topic", "groups", "orders").stdout
    assert "m-1" in invoke("topic", "groups", "orders", "mail").stdout
    assert "has no consumer" in invoke("topic", "groups", "orders", "audit").stderr


def test_topics_are_listed_and_counted_with_queues(invoke: Invoke, topic: Topic, server: RedisServer):
    topic.group("mail", start="0").poll("m-1")
    publish(topic, 3)
    topic.group("mail").poll("m-1", 2)
    topic.publish("later", delay=3600)
    lines = [line.split() for line in invoke("topic", "list").stdout.splitlines()]
    head = ["topic", "records", "waiting", "groups", "unacked", "lag", "dead"]
    assert lines == [head, ["orders", "3", "1", "1", "2", "1", "0"]]
    (document,) = printed(invoke, "list")
    assert (document["topic"], document["records"], document["groups"][0]["name"]) == ("orders", 3, "mail")
    assert [line.split() for line in invoke("stats").stdout.splitlines()] == lines
    shown = invoke("stats", "orders")
    assert shown.stderr == ""
    assert "group mail  lag 1, 2 unacked, 0 dead, 1 consumer" in shown.stdout
    assert json.loads(invoke("stats", "orders", "--json").stdout) == document
    with Queue("emails", url=server.url) as emails:
        emails.send("payload")
    documents = [json.loads(line) for line in invoke("stats", "--json").stdout.splitlines()]
    assert [each.get("queue") or each["topic"] for each in documents] == ["emails", "orders"]


def test_observer_of_queues_needs_no_rights_on_topics(
    invoke: Invoke, topic: Topic, server: RedisServer, redis_client: redis.Redis
):
    publish(topic, 1)
    with Queue("emails", url=server.url) as emails:
        emails.send("payload", id="order-42", delay=60)
    rights = "+@read -exists -xlen +evalsha +eval +client|setname +ping +time +scan"
    redis_client.execute_command("ACL", "SETUSER", "observer", "reset", "on", ">secret", "~*", *rights.split())
    url = server.url.replace("unix://", "unix://observer:secret@")
    try:
        shown = invoke("stats", "--url", url)
        assert (shown.exit_code, "emails" in shown.stdout) == (0, True)
        assert shown.stderr.startswith("topic orders: ")
        assert "order-42 is not due until" in invoke("why", "emails", "order-42", "--url", url).stdout
    finally:
        redis_client.execute_command("ACL", "DELUSER", "observer")


def test_why_knows_records_of_a_topic(invoke: Invoke, topic: Topic):
    (first, second) = publish(topic, 2)
    topic.group("mail", start="0").poll("m-1", 1)
    later = topic.publish("later", delay=3600).id
    held = invoke("why", "orders", first).stdout
    assert held.startswith(f"{first} is in topic orders: group mail has not acked it: m-1 received it ")
    assert "group mail has not received it yet" in invoke("why", "orders", second).stdout
    topic.group("mail").ack([first])
    assert "group mail is past it: it acked it" in invoke("why", "orders", first).stdout
    assert f"{later} is not due until" in invoke("why", "orders", later).stdout
    gone = json.loads(invoke("why", "orders", "5-5", "--json").stdout)
    assert (gone["topic"], gone["id"]) == ("orders", "5-5")
    assert gone["why"].startswith("5-5 is not in topic orders")


def test_group_is_moved(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 3)
    assert "lag 2" in invoke("topic", "group", "move", "orders", "mail", "1000-0").stdout
    assert [each.payload for each in group.poll("m-1")] == [1, 2]


def test_incompletely_counted_lag_is_shown_as_such(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    second = topic.publish_many([NewRecord(bytes(1_000_000)) for _ in range(14)])[1]
    assert "lag at least 10" in invoke("topic", "group", "move", "orders", "mail", second.id).stdout
    assert "at least 10" in invoke("topic", "groups", "orders").stdout
    assert "at least 10" in invoke("topic", "list").stdout
    assert "lag at least 10" in invoke("stats", "orders").stdout
    assert group.info().at_least


def test_unacked_records_are_listed_and_claimed(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 3)
    group.poll("m-1", 2)
    group.poll("m-2", 1)
    rows = printed(invoke, "unacked", "orders", "mail", "--consumer", "m-1", "--limit", "1")
    assert [(each["id"], each["consumer"], each["deliveries"]) for each in rows] == [("1000-0", "m-1", 1)]
    assert printed(invoke, "unacked", "orders", "mail", "--idle", "1h") == []
    assert printed(invoke, "claim", "orders", "mail", "m-3", "--idle", "1h") == []
    claimed = printed(invoke, "claim", "orders", "mail", "m-3", "--idle", "0", "--limit", "2")
    assert [(each["payload"], each["deliveries"]) for each in claimed] == [(0, 2), (1, 2)]
    assert {each.consumer for each in group.unacked()} == {"m-2", "m-3"}
    assert "1002-0" in invoke("topic", "unacked", "orders", "mail", "--consumer", "m-2").stdout
    assert "has no consumer 'm-9'" in refused(invoke, "unacked", "orders", "mail", "--consumer", "m-9", code=1)


def test_dead_letters_are_listed_and_requeued(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 2)
    group.poll("m-1")
    said = invoke("topic", "claim", "orders", "mail", "m-2", "--idle", "0", "--max-deliveries", "1").stdout
    assert said == "buried 2 records: see delayq topic group dead\n"
    first, second = printed(invoke, "group", "dead", "orders", "mail")
    assert (first["record"]["payload"], first["deliveries"], first["consumer"]) == (0, 1, "m-1")
    row = invoke("topic", "group", "dead", "orders", "mail").stdout.splitlines()[1]
    assert row.split()[:2] == [first["id"], first["record"]["id"]]
    assert first["reason"] in row
    assert printed(invoke, "group", "requeue", "orders", "mail", first["id"]) == [{"requeued": 1}]
    assert [each.id for each in group.dead()] == [second["id"]]
    topic.trim(max_length=0, approximate=False)
    result = invoke("topic", "group", "requeue", "orders", "mail", "--all")
    assert (result.exit_code, result.stdout) == (0, "requeued 1 record\n")
    assert [each.payload for each in group.poll("m-2")] == [1]


def test_dead_letters_are_deleted(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 2)
    for record in group.poll("m-1"):
        group.bury(record, "m-1")
    first, _ = group.dead()
    assert printed(invoke, "group", "delete", "orders", "mail", first.id, "--yes") == [{"deleted": 1}]
    again = invoke("topic", "group", "delete", "orders", "mail", first.id, "--yes")
    assert (again.exit_code, again.stdout) == (1, "deleted 0 records\n")
    assert "unchanged: 1 of 1, not dead" in again.stderr
    assert printed(invoke, "group", "delete", "orders", "mail", "--all", "--yes") == [{"deleted": 1}]
    assert group.dead() == []


def test_ghosts_are_cleared_and_counted(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 4)
    group.poll("m-1")
    topic.trim(max_length=1, approximate=False)
    assert printed(invoke, "unacked", "orders", "mail", "--clear-ghosts") == [{"cleared": 3}]
    assert [each.id for each in group.unacked()] == ["1003-0"]


def test_consumer_that_holds_records_needs_a_successor(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 2)
    group.poll("m-1")
    assert "m-1" in refused(invoke, "group", "remove-consumer", "orders", "mail", "m-1", code=1)
    done = printed(invoke, "group", "remove-consumer", "orders", "mail", "m-1", "--to", "m-2")
    assert done == [{"removed": "m-1", "handed_over": 2}]
    assert [each.name for each in group.consumers()] == ["m-2"]


def test_topic_is_trimmed_by_length_id_and_acks(invoke: Invoke, topic: Topic):
    group = topic.group("mail")
    publish(topic, 10)
    assert printed(invoke, "trim", "orders", "--max-length", "8", "--exact") == [{"dropped": 2}]
    assert printed(invoke, "trim", "orders", "--from", "1003-0", "--exact") == [{"dropped": 1}]
    group.ack(group.poll("m-1", 3))
    result = invoke("topic", "trim", "orders", "--acked")
    assert "dropped 3 records of topic orders; 4 left" in result.stdout
    assert "group mail still needs the records from 1005-1 on" in result.stderr
    assert printed(invoke, "trim", "orders", "--acked") == [{"dropped": 0, "slowest": "mail", "oldest": "1005-1"}]


def test_topic_without_groups_keeps_all_records(invoke: Invoke, topic: Topic):
    publish(topic, 2)
    result = invoke("topic", "trim", "orders", "--acked")
    assert "2 left" in result.stdout
    assert "has no group" in result.stderr


def test_topic_shrinks_to_the_records_since_the_last_shrink(invoke: Invoke, topic: Topic):
    publish(topic, 4)
    assert printed(invoke, "shrink", "orders") == [{"dropped": 0}]
    topic.publish("new")
    assert printed(invoke, "shrink", "orders") == [{"dropped": 4}]
    assert [each.payload for each in topic.range()] == ["new"]


def test_single_records_are_deleted(invoke: Invoke, topic: Topic):
    publish(topic, 3)
    assert printed(invoke, "delete", "orders", "1000-0", "1001-0") == [{"deleted": 2}]
    assert [each.payload for each in topic.range()] == [2]
    result = invoke("topic", "delete", "orders", "1000-0", "1002-0")
    assert (result.exit_code, result.stdout) == (1, "deleted 1 record\n")
    assert "1 of 2 records not in topic orders" in result.stderr


def test_group_is_deleted(invoke: Invoke, topic: Topic):
    topic.group("mail")
    assert printed(invoke, "destroy", "orders", "mail", "--yes") == [{"destroyed": "mail"}]
    assert topic.groups() == []


def test_tail_prints_new_records_and_exits_with_0_on_ctrl_c(start: Start, topic: Topic):
    publish(topic, 2)
    process = start("topic", "tail", "orders", "--from", "1000-0", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["payload"] == 1
    topic.publish("new")
    assert json.loads(process.stdout.readline())["payload"] == "new"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 0


@pytest.mark.full
def test_waiting_tail_exits_with_0_on_ctrl_c(start: Start, topic: Topic):
    process = start("topic", "tail", "orders")
    client = topic._executor.client
    assert eventually(lambda: any("xread" in each["cmd"] for each in client.client_list()))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 0


def test_commands_use_the_recorded_number_of_shards(invoke: Invoke, server: RedisServer):
    with Topic("many", url=server.url, shards=3) as topic:
        topic.group("mail")
        topic.publish_many([NewRecord(number) for number in range(9)])
        poll = ["read", "many", "mail", "--consumer", "m-1"]
        assert sorted(each["payload"] for each in printed(invoke, *poll, "--ack")) == list(range(9))
        assert topic.group("mail").unacked() == []
