"""An id that is not UTF-8, stored by another program, is buried, shown and repaired, and harms nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import fakeredis
import pytest
import redis
from delayq.cli.output import record

from delayq import Consumer, Outgoing, Queue
from delayq.doctor import examine
from delayq.errors import InvalidName, PayloadNotSerializable, ServerError
from delayq.model.envelope import encode_envelope
from delayq.model.placement import STATES, State
from delayq.operations import manage
from tests.cli import conftest
from tests.cli.conftest import Invoke, Run
from tests.harness.hostile import commands_to_a_terminal
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

environment, invoke, server, delayq = conftest.environment, conftest.invoke, conftest.server, conftest.delayq

FOREIGN = b"caf\xe9\xff"
SHOWN = r"caf\xe9\xff"
P = "delayq:{emails}:"
OWN = [f"own-{number}" for number in range(40)]
WAITING: tuple[State, ...] = ("pending", "ready", "retry")
SOUND = b"1700000000000" + encode_envelope("x", 3)
PAYLOADS = {"no payload": None, "no envelope": b"\xff", "an envelope": SOUND}


@pytest.fixture
def queue(any_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=any_server.url, shards=None) as queue:
        yield queue


def plant(client: redis.Redis, state: str, payload: bytes | None = None) -> None:
    client.zadd(P + state, {FOREIGN: 1})
    if payload is not None:
        client.set(P.encode() + b"msg:" + FOREIGN, payload)


def where(client: redis.Redis) -> list[str]:
    return [state for state in STATES if client.zscore(P + state, FOREIGN) is not None]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("state", WAITING)
def test_claim_buries_a_foreign_id_and_returns_the_others(
    state: State, payload: str, queue: Queue, any_client: redis.Redis
) -> None:
    queue.send_many([Outgoing("x", id=each) for each in OWN])
    plant(any_client, state, PAYLOADS[payload])
    assert sorted(message.id for message in queue.receive(100)) == sorted(OWN)
    (letter,) = queue.dead.list()
    assert letter.reason == ("payload-missing" if payload == "no payload" else "unreadable-envelope")
    assert where(any_client) == ["dead"]
    assert queue.dead.purge() == 1
    assert any_client.exists(P.encode() + b"msg:" + FOREIGN) == 0


def test_late_part_of_a_claim_buries_a_foreign_id_too(queue: Queue, any_client: redis.Redis) -> None:
    queue.send_many([Outgoing("x", id=each) for each in OWN])
    plant(any_client, "ready", SOUND)
    prefix = (P + "msg:").encode()
    any_client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-mget", "-get"])
    try:
        with pytest.raises(ServerError, match=r"(?i)get|permission|right|can.t run"):
            queue.receive(100)
    finally:
        any_client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
    received = [message.id for _ in range(9) for message in queue.receive(7)]
    assert sorted(received) == sorted(OWN)
    assert (where(any_client), any_client.exists(prefix + FOREIGN)) == (["dead"], 1)


@pytest.mark.same_on_all_servers
def test_consumer_handles_the_other_messages_and_never_sees_a_foreign_id(queue: Queue, any_client: redis.Redis) -> None:
    queue.send_many([Outgoing("x", id=each) for each in OWN])
    handled: list[str] = []
    for state in WAITING:
        plant(any_client, state, SOUND)
        Consumer(queue, lambda message: handled.append(message.id)).run(burst=True)
        assert where(any_client) == ["dead"]
        any_client.zrem(P + "dead", FOREIGN)
    assert sorted(handled) == sorted(OWN)


@pytest.mark.same_on_all_servers
def test_consumer_buries_a_foreign_id_with_an_expired_lease(queue: Queue, any_client: redis.Redis) -> None:
    plant(any_client, "unack")
    any_client.set(P.encode() + b"msg:" + FOREIGN, SOUND)
    Consumer(queue, lambda _: None).run(burst=True)
    any_client.zadd(P + "retry", {FOREIGN: 1}, xx=True)
    Consumer(queue, lambda _: None).run(burst=True)
    assert where(any_client) == ["dead"]


@pytest.mark.same_on_all_servers
def test_consumer_buries_a_foreign_id_when_it_falls_due(queue: Queue, any_client: redis.Redis) -> None:
    any_client.set(P.encode() + b"msg:" + FOREIGN, SOUND)
    any_client.zadd(P + "pending", {FOREIGN: int(time.time() * 1000) + 300})
    consumer = Consumer(queue, lambda _: None)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run)
        try:
            assert eventually(lambda: where(any_client) == ["dead"])
        finally:
            consumer.stop()
        assert running.result() == 0


def test_client_without_a_fast_socket_does_the_same() -> None:
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    with Queue("emails", redis=client) as queue:
        queue.send_many([Outgoing("x", id=each) for each in OWN])
        plant(client, "ready", SOUND)
        assert sorted(message.id for message in queue.receive(100)) == sorted(OWN)
        assert [letter.reason for letter in queue.dead.list()] == ["unreadable-envelope"]
        assert queue.execute(manage.requeue_all) == 1
        client.delete(P.encode() + b"msg:" + FOREIGN)
        assert ("payload-missing", SHOWN) in {(each.kind, each.id) for each in examine(queue, repair=True).findings}
        assert where(client) == ["dead"]
        assert queue.dead.purge() == 1


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", [state for state in STATES if state != "garbage"])
def test_peek_shows_a_foreign_id(state: State, queue: Queue, any_client: redis.Redis) -> None:
    plant(any_client, state)
    (info,) = queue.peek(state, 5)
    assert info.id.encode(errors="surrogateescape") == FOREIGN
    assert record(info)["id"] == SHOWN


@pytest.mark.parametrize("state", STATES)
def test_foreign_id_can_be_removed_without_a_trace(state: State, queue: Queue, any_client: redis.Redis) -> None:
    queue.send("x", id="own", delay=60)
    before = set(any_client.keys("*"))
    plant(any_client, state)
    report = examine(queue, repair=True)
    assert report.healthy
    if state == "unack":
        any_client.zadd(P + "retry", {FOREIGN: 1}, xx=True)
    queue.receive()
    queue.dead.purge()
    queue.collect_garbage()
    assert where(any_client) == []
    noted = {f"{P}{key}".encode() for key in ("consumers", "crew", "samples:minute", "samples:ten")}
    assert set(any_client.keys("*")) - noted == before
    assert examine(queue).healthy


@pytest.mark.parametrize("state", ["pending", "ready", "retry", "dead"])
def test_doctor_names_and_repairs_a_foreign_id(state: State, queue: Queue, any_client: redis.Redis) -> None:
    plant(any_client, state)
    report = examine(queue)
    found = {(finding.kind, finding.id) for finding in report.findings}
    assert ("payload-missing", SHOWN) in found
    assert not report.healthy
    repaired = examine(queue, repair=True)
    assert all(finding.repaired for finding in repaired.findings if finding.id == SHOWN)
    assert where(any_client) == ["dead"]
    again = examine(queue)
    assert (again.healthy, [finding for finding in again.findings if finding.id]) == (True, [])


@pytest.mark.same_on_all_servers
def test_doctor_repairs_a_foreign_id_in_every_structure(queue: Queue, any_client: redis.Redis) -> None:
    for state in STATES:
        plant(any_client, state)
    assert ("duplicate", SHOWN) in {(finding.kind, finding.id) for finding in examine(queue, repair=True).findings}
    assert where(any_client) == ["retry"]  # it was in unack with an expired lease, and was taken back
    assert queue.receive() == []
    assert where(any_client) == ["dead"]


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", WAITING)
def test_doctor_names_a_foreign_id_with_a_payload(state: State, queue: Queue, any_client: redis.Redis) -> None:
    plant(any_client, state, SOUND)
    (finding,) = (finding for finding in examine(queue).findings if finding.id)
    assert (finding.kind, finding.id, finding.severity) == ("id", SHOWN, "warning")


@pytest.mark.same_on_all_servers
def test_queue_with_shards_does_the_same(any_server: RedisServer, any_client: redis.Redis) -> None:
    with Queue("parted", url=any_server.url, shards=3) as queue:
        queue.send("x", id="own")
        for number in ("", "#1", "#2"):
            any_client.zadd(f"delayq:{{parted{number}}}:ready", {FOREIGN: 1})
        assert [message.id for _ in range(3) for message in queue.receive(100)] == ["own"]
        assert queue.stats().dead == 3
        assert [info.state for info in queue.peek("dead")] == ["dead"] * 3
        assert [letter.reason for letter in queue.dead.list()] == ["payload-missing"] * 3
        assert examine(queue, repair=True).healthy


@pytest.mark.same_on_all_servers
def test_requeue_of_all_requeues_a_foreign_id_which_is_buried_again(queue: Queue, any_client: redis.Redis) -> None:
    plant(any_client, "dead", SOUND)
    assert queue.execute(manage.requeue_all) == 1
    assert queue.receive() == []
    assert where(any_client) == ["dead"]


# -- on the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def emails(server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=server.url) as queue:
        queue.send("x", id="own", delay=60)
        yield queue


LOOKS = [
    *(["peek", "emails", "--state", state] for state in ("pending", "ready", "unack", "retry", "dead")),
    ["dead", "list", "emails"],
]


def test_command_line_shows_a_foreign_id_escaped(emails: Queue, redis_client: redis.Redis, invoke: Invoke) -> None:
    assert emails.name == "emails"
    for state in ("pending", "ready", "unack", "retry", "dead"):
        plant(redis_client, state)
        redis_client.zadd(P + state, {FOREIGN + state.encode(): 1})
    for words in LOOKS:
        plain, as_json = invoke(*words), invoke(*words, "--json")
        assert (plain.exit_code, as_json.exit_code) == (0, 0), (words, plain.exception, as_json.exception)
        assert SHOWN in plain.stdout, words
        state = words[-1] if "--state" in words else "dead"
        assert f"{SHOWN}{state}" in {json.loads(line)["id"] for line in as_json.stdout.splitlines()}, words
        assert commands_to_a_terminal(plain.stdout + as_json.stdout) == set(), words


@pytest.mark.parametrize("more", [[], ["--json"], ["--repair"], ["--repair", "--json"]], ids=" ".join)
def test_doctor_command_names_a_foreign_id(
    more: list[str], emails: Queue, redis_client: redis.Redis, invoke: Invoke
) -> None:
    assert emails.name == "emails"
    plant(redis_client, "ready")
    result = invoke("doctor", "emails", *more)
    assert result.exit_code == (0 if "--repair" in more else 1), result.exception
    if "--json" in more:
        findings = json.loads(result.stdout)["findings"]
        assert {finding["kind"] for finding in findings if finding["id"] == SHOWN} == {"payload-missing"}
    else:
        assert SHOWN in result.stdout


@pytest.mark.parametrize("log_format", [pytest.param("console", marks=pytest.mark.full), "json"])
def test_consume_command_logs_a_foreign_id_and_continues(
    log_format: str, emails: Queue, redis_client: redis.Redis, delayq: Run
) -> None:
    emails.send("x", id="due")
    plant(redis_client, "ready")
    done = delayq("consume", "emails", "--exec", "true", "--burst", "--log-format", log_format)
    assert done.returncode == 0, done.stderr
    assert SHOWN.replace("\\", "\\\\") in done.stderr or SHOWN in done.stderr
    assert "message dead-lettered" in done.stderr
    assert (where(redis_client), emails.stats().acked) == (["dead"], 1)


# -- what send accepts -------------------------------------------------------------------------------------------------


def test_send_refuses_a_foreign_id(redis_server: RedisServer) -> None:
    with Queue("emails", url=redis_server.url) as queue:
        for message_id in ("\udcff", "a\udc80", chr(0xD800)):
            with pytest.raises(InvalidName):
                queue.send("x", id=message_id)
            with pytest.raises(InvalidName):
                queue.send_many([Outgoing("x"), Outgoing("x", id=message_id)])
            assert queue.stats().sent == 0


def test_number_with_more_digits_than_can_be_read_is_refused_by_send() -> None:
    for number in (10**4298, -(10**4298), 10**4299):
        encode_envelope([number, {"a": [number] * 3}, "x" * 7000], 3)
    for number in (-(10**4299), 10**4300, -(10**4300)):
        for payload in (number, ["x" * 7000, number, 1], {"a": {"b": [number] * 3}}):
            with pytest.raises(PayloadNotSerializable):
                encode_envelope(payload, 3)


def test_long_number_is_found_anywhere_in_a_payload() -> None:
    for start in range(0, 9000, 487):
        with pytest.raises(PayloadNotSerializable):
            encode_envelope(["x" * start, -(10**4299)], 3)


def test_text_of_many_digits_is_not_a_number() -> None:
    encode_envelope("9" * 20_000, 3)
    encode_envelope({"a": "-" + "1" * 4300, "b": 5}, 3)
