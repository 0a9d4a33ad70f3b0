"""Groups: a message that waits until all others have ended, in whatever way they end."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from delayq import DuplicateMessage, InvalidInput, NoResult, Outgoing, Queue, QueueFull, ResultTimeout, TaskFailed
from delayq.errors import OtherShard
from delayq.model.units import from_ms
from delayq.operations import groups, manage
from delayq.protocol.queue_commands import QueueCommands
from delayq.types import MessageGroup, MessageInfo
from tests.contract.conftest import Drain, Make, Now
from tests.contract.test_tasks import task
from tests.harness.awaiting import Awaited

THEN = Outgoing("then")


def members(count: int = 2, **options: Any) -> list[Outgoing]:
    return [Outgoing(number, **options) for number in range(count)]


def group_of(queue: Queue, group_id: str) -> MessageGroup:
    group = queue.group(group_id)
    assert group
    return group


def info_of(queue: Queue, message_id: str | None) -> MessageInfo:
    info = message_id and queue.get(message_id)
    assert info
    return info


def payloads(queue: Queue) -> list[Any]:
    return [message.payload for message in queue.receive()]


def test_then_is_held_until_the_last_member_is_acked(queue: Queue, now: Now):
    sent = queue.send_group(members(3), THEN)
    assert [each.created for each in sent.sents] == [True] * 3
    [first, second, third] = queue.receive()
    (held,) = queue.peek("held")
    assert (held.state, held.payload, held.group, held.due_at) == ("held", "then", sent.id, None)
    assert info_of(queue, first.id).member_of == sent.id
    first.ack()
    second.ack()
    assert queue.receive() == []
    group = group_of(queue, sent.id)
    assert (group.total, group.left, group.dead, group.state, group.then) == (3, 1, 0, "running", held.id)
    now.later(5)
    third.ack()
    group = group_of(queue, sent.id)
    assert (group.left, group.state, group.ended_at) == (0, "done", from_ms(now()))
    (last,) = queue.receive()
    assert (last.payload, last.group, last.headers, last.lateness) == ("then", sent.id, {}, 0)
    last.ack()
    stats = queue.stats()
    assert (stats.sent, stats.acked, stats.held, stats.inside, stats.missing) == (4, 4, 0, 0, 0)


def test_consumer_runs_the_group_and_then_the_message_that_waits(queue: Queue, drain: Drain):
    queue.send_group(members(5), Outgoing("then", delay=0))
    seen: list[Any] = []
    drain(queue, lambda message: seen.append(message.payload))
    assert sorted(seen[:5]) == [0, 1, 2, 3, 4]
    assert seen[5:] == ["then"]


def test_members_may_come_from_a_generator(queue: Queue):
    sent = queue.send_group((Outgoing(number) for number in range(2)), THEN)
    assert group_of(queue, sent.id).total == len(sent.sents) == 2


def test_then_of_an_empty_group_is_due_at_once(queue: Queue):
    sent = queue.send_group([], THEN)
    assert sent.sents == []
    assert payloads(queue) == ["then"]
    assert group_of(queue, sent.id).state == "done"
    nothing = queue.send_group([])
    assert (group_of(queue, nothing.id).total, group_of(queue, nothing.id).state) == (0, "done")


def test_group_without_then_only_counts(queue: Queue):
    sent = queue.send_group(members())
    queue.ack(queue.receive())
    assert (group_of(queue, sent.id).state, group_of(queue, sent.id).then) == ("done", None)
    assert queue.receive() == []


def test_delay_of_then_counts_from_the_end_of_the_last_member(queue: Queue, now: Now):
    queue.send_group(members(1), Outgoing("then", delay=10))
    now.later(60)
    queue.ack(queue.receive())
    now.later(9.999)
    assert queue.receive() == []
    now.later(0.001)
    assert payloads(queue) == ["then"]


class At(NamedTuple):
    """Where a member is to end."""

    queue: Queue
    message: Any
    now: Now
    client: Any


def _later(at: At, seconds: float) -> list[Any]:
    at.now.later(seconds)
    return at.queue.receive()


def _follow(at: At) -> None:
    at.message.release()
    at.queue.reschedule(at.message.id, delay=999)
    at.queue.send("other")
    (running,) = at.queue.receive()
    running.ack(then=[Outgoing("new", id=at.message.id, on_conflict="replace", delay=999)])


def _lose(at: At) -> None:
    at.message.release()
    at.client.delete(*at.client.keys(f"*msg:{at.message.id}"))
    for then in at.queue.receive():
        then.release()


def _bury(context: Any, message_id: str) -> Any:
    return manage.bury(context, message_id, "unwanted")


END: dict[str, Callable[[At], object]] = {
    "acked": lambda at: at.message.ack(),
    "acked with follow-ups": lambda at: at.message.ack(then=[Outgoing("more", delay=999)]),
    "replaced in flight": lambda at: at.queue.send(1, id=at.message.id, on_conflict="replace", delay=999),
    "replaced by a follow-up": _follow,
    "cancelled in flight, then nacked": lambda at: (at.queue.cancel(at.message.id), at.message.nack(delay=0)),
    "cancelled in flight, then rejected": lambda at: (at.queue.cancel(at.message.id), at.message.reject()),
    "cancelled in flight, then released": lambda at: (at.queue.cancel(at.message.id), at.message.release()),
    "cancelled in flight, then lost": lambda at: (at.queue.cancel(at.message.id), _later(at, 60)),
    "cancelled before its retry": lambda at: (at.message.nack(delay=99), at.queue.cancel(at.message.id)),
    "purged before its retry": lambda at: (at.message.nack(delay=99), at.queue.purge("retry")),
    "dead and cancelled": lambda at: (at.message.reject(), at.queue.cancel(at.message.id)),
    "dead and purged": lambda at: (at.message.reject(), at.queue.dead.purge()),
    "dead, requeued and acked": lambda at: (
        at.message.reject(),
        at.queue.dead.requeue(at.message.id),
        at.queue.ack(at.queue.receive()),
    ),
    "lost and acked again": lambda at: at.queue.ack(_later(at, 60)),
}


@pytest.mark.parametrize("end", END)
def test_member_ends_however_it_ends(make: Make, client: Any, now: Now, end: str):
    queue = make("one-shard", shards=1)
    sent = queue.send_group(members(1), THEN)
    (message,) = queue.receive()
    END[end](At(queue, message, now, client))
    assert group_of(queue, sent.id).state == "done"
    assert queue.stats().held == 0
    then = info_of(queue, group_of(queue, sent.id).then)
    assert (
        then.state == "unack" if end.endswith("then lost") else (then.state, then.due_at) == ("pending", from_ms(now()))
    )
    assert queue.stats().missing == 0


WAITING: dict[str, Callable[[At], object]] = {
    "cancelled": lambda at: at.queue.cancel(at.message.id),
    "purged": lambda at: at.queue.purge("pending"),
    "replaced": lambda at: at.queue.send("new", id=at.message.id, on_conflict="replace", delay=99),
    "expired": lambda at: _later(at, 20),
}


@pytest.mark.parametrize("end", WAITING)
def test_member_that_never_started_ends(queue: Queue, client: Any, now: Now, end: str):
    sent = queue.send_group(members(1, delay=10, expires_in=15), THEN)
    WAITING[end](At(queue, sent.sents[0], now, client))
    assert group_of(queue, sent.id).state == "done"
    assert info_of(queue, group_of(queue, sent.id).then).state == ("unack" if end == "expired" else "pending")


FAIL: dict[str, Callable[[At], object]] = {
    "rejected": lambda at: at.message.reject(),
    "buried": lambda at: (at.message.release(), at.queue.execute(_bury, at.message.id)),
    "payload lost": _lose,
}


@pytest.mark.parametrize("fail", FAIL)
def test_dead_member_holds_its_group_until_it_is_deleted(queue: Queue, client: Any, now: Now, fail: str):
    sent = queue.send_group(members(1), THEN)
    (message,) = queue.receive()
    FAIL[fail](At(queue, message, now, client))
    group = group_of(queue, sent.id)
    assert (group.left, group.dead, group.state) == (1, 1, "blocked")
    assert queue.receive() == []
    why = queue.why(str(group.then))
    assert "1 of 1 member has not ended" in why
    assert "dead" in why
    queue.cancel(message.id)
    assert group_of(queue, sent.id).state == "done"
    assert payloads(queue) == ["then"]


@pytest.mark.parametrize("fail", FAIL)
def test_dead_member_counts_as_ended_if_asked(queue: Queue, client: Any, now: Now, fail: str):
    sent = queue.send_group(members(1), THEN, dead="continue")
    (message,) = queue.receive()
    FAIL[fail](At(queue, message, now, client))
    group = group_of(queue, sent.id)
    assert (group.left, group.dead, group.state) == (0, 1, "done")
    assert payloads(queue) == ["then"]


def test_member_that_died_counts_once_even_if_it_is_redriven(queue: Queue):
    sent = queue.send_group(members(2), THEN, dead="continue")
    first, second = queue.receive()
    first.reject()
    queue.dead.requeue(first.id)
    queue.ack(queue.receive())
    assert group_of(queue, sent.id).left == 1
    second.ack()
    assert payloads(queue) == ["then"]


def test_id_that_is_used_again_is_no_member(make: Make):
    queue = make("one-shard", shards=1)
    sent = queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=99)], THEN)
    queue.ack(queue.receive())
    queue.send("again", id="a")
    queue.ack(queue.receive())
    assert group_of(queue, sent.id).left == 1
    assert info_of(queue, "b").member_of == sent.id


def test_all_of_a_group_is_stored_or_nothing(make: Make, client: Any):
    queue = make("one-shard", shards=1)
    queue.send("there", id="there")
    before = {key: client.dump(key) for key in client.keys("*")}
    for messages, then in (([Outgoing(1), Outgoing(2, id="there")], THEN), (members(), Outgoing(3, id="there"))):
        with pytest.raises(DuplicateMessage, match="'there' exists already: nothing of group 'g' was stored"):
            queue.send_group(messages, then, id="g")
        assert {key: client.dump(key) for key in client.keys("*")} == before
    assert queue.group("g") is None


def test_held_message_is_not_sent_twice(make: Make):
    queue = make("one-shard", shards=1)
    queue.send_group(members(1), Outgoing("then", id="t"))
    assert not queue.send("other", id="t").created
    with pytest.raises(DuplicateMessage):
        queue.send_group([], Outgoing("other", id="t"))
    assert queue.stats().held == 1
    assert queue.send("other", id="t", on_conflict="replace") == queue.send("x", id="t")._replace()
    assert (queue.stats().held, queue.stats().missing) == (0, 0)


def test_group_that_exists_is_left_as_it_is(make: Make):
    queue = make("one-shard", shards=1)
    first = queue.send_group(members(2), THEN, id="g")
    second = queue.send_group(members(2), THEN, id="g")
    assert second.id == "g"
    assert [each.id for each in second.sents] == [each.id for each in first.sents]
    assert [each.created for each in second.sents] == [False, False]
    assert queue.stats().sent == 3


def test_member_that_is_gone_unnoticed_ends_when_its_id_joins_another_group(make: Make, client: Any):
    queue = make("one-shard", shards=1)
    first = queue.send_group([Outgoing(1, id="a")], THEN)
    client.zrem("delayq:{one-shard}:pending", "a")
    second = queue.send_group([Outgoing(2, id="a", delay=60)], Outgoing("second"))
    assert [group_of(queue, each.id).left for each in (first, second)] == [0, 1]
    assert payloads(queue) == ["then"]


def test_purge_of_all_messages_makes_none_due(queue: Queue):
    queue.send_group(members(2), THEN)
    assert queue.purge() == 3
    assert (queue.stats().inside, queue.stats().purged, queue.stats().missing) == (0, 3, 0)


def test_full_queue_takes_no_part_of_a_group(make: Make):
    queue = make("bounded", shards=1)
    queue.configure(max_length=2)
    with pytest.raises(QueueFull, match="nothing of group 'g' was stored"):
        queue.send_group(members(2), THEN, id="g")
    assert queue.stats().sent == 0
    queue.send_group(members(1), THEN)
    with pytest.raises(QueueFull):  # the held one counts
        queue.send("more")


def withdrawn_alone(queue: Queue, _: str) -> None:
    assert queue.cancel("t") == "cancelled"


def withdrawn_with_its_group(queue: Queue, name: str) -> None:
    assert queue.cancel_group(name) == 1


def moved(queue: Queue, _: str) -> None:
    queue.reschedule("t", delay=0)
    queue.ack(queue.receive())


@pytest.mark.parametrize("leave", [withdrawn_alone, withdrawn_with_its_group, moved])
@pytest.mark.parametrize("seconds", [0, 1])
def test_message_waits_for_its_own_group_if_an_earlier_one_had_its_id(
    make: Make, now: Now, leave: Callable[[Queue, str], None], seconds: int
):
    queue = make("one-shard", shards=1)
    first = queue.send_group(members(1), Outgoing("first", id="t"))
    (running,) = queue.receive()
    leave(queue, first.id)
    now.later(seconds)
    second = queue.send_group(members(1, delay=60), Outgoing("second", id="t"))
    assert queue.cancel_group(first.id) == 0
    running.ack()
    assert (info_of(queue, "t").state, queue.receive()) == ("held", [])
    now.later(60)
    queue.ack(queue.receive())
    assert payloads(queue) == ["second"]
    assert [group_of(queue, each.id).left for each in (first, second)] == [0, 0]


def test_cancelled_group_leaves_a_later_message_with_the_id_of_a_member(
    make: Make, client: Any, monkeypatch: pytest.MonkeyPatch
):
    queue = make("one-shard", shards=1)
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b")], THEN, id="g")
    cancel = QueueCommands.cancel

    def cancel_later(*args: Any, **options: Any) -> Any:
        client.hdel("delayq:{one-shard}:members", "a")  # as it was acked meanwhile, and its id sent again
        return cancel(*args, **options)

    monkeypatch.setattr(QueueCommands, "cancel", cancel_later)
    assert queue.cancel_group("g") == 2
    assert (info_of(queue, "a").state, queue.get("b")) == ("pending", None)


def test_cancelled_group_ends_its_members(queue: Queue):
    sent = queue.send_group([Outgoing("runs"), *members(2, delay=99)], THEN)
    (running,) = queue.receive()
    assert queue.cancel_group(sent.id) == 3
    assert (queue.stats().held, queue.stats().pending) == (0, 0)
    group = group_of(queue, sent.id)
    assert (group.state, group.left) == ("cancelled", 1)
    assert info_of(queue, running.id).cancelled
    running.nack(delay=0)
    assert group_of(queue, sent.id).left == 0
    assert queue.receive() == []
    assert queue.cancel_group("nobody") == queue.cancel_group(sent.id) == 0
    assert queue.stats().missing == 0


def test_operator_may_cancel_purge_run_or_bury_what_is_held(make: Make):
    queue = make("one-shard", shards=1)
    for number in range(4):
        queue.send_group([Outgoing("m", delay=99)], Outgoing("then", id=f"t{number}"))
    assert queue.cancel("t0") == "cancelled"
    assert queue.reschedule("t1", delay=0) == "rescheduled"
    assert queue.execute(_bury, "t2") == "buried"
    assert queue.purge("held") == 1
    assert [queue.get(f"t{number}") and info_of(queue, f"t{number}").state for number in range(4)] == [
        None,
        "pending",
        "dead",
        None,
    ]
    queue.now([each.id for each in queue.peek("pending", limit=9)])
    assert len(queue.ack(queue.receive())) == 5
    assert (queue.stats().held, queue.stats().missing, queue.stats().dead) == (0, 0, 1)


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda queue: queue.send_group("ab", THEN), "'ab' is not a list"),
    (lambda queue: queue.send_group([1], THEN), "1 is not an Outgoing: give send_group a list"),
    (lambda queue: queue.send_group([], [THEN]), "is not an Outgoing: give send_group"),
    (lambda queue: queue.send_group(members(1001), THEN), "the group has more than 1,000 members"),
    (lambda queue: queue.send_group([Outgoing(b"x" * 2**20)] * 4, THEN), "take more than 4,194,304 bytes"),
    (lambda queue: queue.send_group([Outgoing(1, id="a")] * 2), "message id 'a' is twice in the group"),
    (lambda queue: queue.send_group([Outgoing(1, id="a", unique_for=9)]), "unique_for=9 is not allowed in a group"),
    (lambda queue: queue.send_group([], Outgoing(1, id="a", on_conflict="replace")), "its ids must be new"),
    (lambda queue: queue.send_group([], dead=["wait"]), r"unknown dead \['wait'\]; expected one of"),
    (lambda queue: queue.send_group([], dead="die"), "unknown dead 'die'; expected one of wait, continue"),
]


@pytest.mark.parametrize(("call", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_group_is_refused_before_anything_is_stored(queue: Queue, call: Any, text: str):
    with pytest.raises(InvalidInput, match=text):
        call(queue)
    assert queue.stats().sent == 0


def test_group_lives_on_one_shard(make: Make):
    queue = make("wide", shards=3)
    for number in range(6):
        sent = queue.send_group(members(4), Outgoing("then", id=f"t{number}"))
        assert group_of(queue, sent.id).total == 4
    with pytest.raises(OtherShard, match="a group lives on one: leave ids out"):
        queue.send_group([Outgoing(number, id=f"m{number}") for number in range(9)])
    while found := queue.receive(max_messages=100):
        queue.ack(found)
    assert (queue.stats().acked, queue.stats().held) == (30, 0)


def test_group_of_a_thousand_ends_once(queue: Queue):
    sent = queue.send_group(members(1000), THEN)
    seen = 0
    while found := queue.receive(max_messages=500):
        assert seen < 1000 or [each.payload for each in found] == ["then"]
        seen += sum(queue.ack(found))
    assert seen == 1001
    assert group_of(queue, sent.id).state == "done"


def test_sweep_finds_members_that_nobody_counted(queue: Queue, client: Any, now: Now):
    """An older delayq settles them, or another program deletes them."""
    sent = queue.send_group(members(3), THEN)
    for key in client.keys("*:pending"):
        client.delete(key)
    now.later(60)
    queue.execute(groups.sweep)
    assert group_of(queue, sent.id).state == "done"
    assert payloads(queue) == ["then"]
    now.later(3601)
    while queue.execute(groups.sweep):
        pass
    assert queue.group(sent.id) is not None  # then still exists
    now.later(60)
    queue.ack(queue.receive())
    now.later(60)
    while queue.execute(groups.sweep):
        pass
    assert queue.group(sent.id) is None
    assert client.keys("*rosters") == []


def add(a: int, b: int = 1) -> int:
    if a < 0:
        raise ValueError(f"{a} is negative")
    return a + b


def test_group_has_the_results_of_its_members_in_the_order_of_sending(queue: Queue, drain: Drain):
    adding, plain = task(queue, add, results=3600, max_retries=0), task(queue, add, name="plain")
    given = [adding.message(number) for number in range(40)]
    sent = queue.send_group([*given, adding.message(-1), plain.message(5), *members(1, delay=600)], THEN)
    drain(queue, None)
    later = queue.send_group([Outgoing(1, delay=60)])
    found = list(group_of(queue, sent.id).results(return_exceptions=True))
    assert found[:40] == list(range(1, 41))
    assert [type(each) for each in found[40:]] == [TaskFailed, NoResult, NoResult]
    assert (found[40].type, found[40].text) == ("ValueError", "-1 is negative")
    assert "its task keeps none" in str(found[41])
    assert "keeps no result" in str(found[42])
    with pytest.raises(TaskFailed):
        sum(group_of(queue, sent.id).results())
    with pytest.raises(NoResult):
        list(group_of(queue, later.id).results())


def test_member_that_was_edited_as_a_dead_letter_has_a_result_for_its_group(queue: Queue, drain: Drain, now: Now):
    adding = task(queue, add, results=3600, max_retries=0)
    sent = queue.send_group([adding.message(-1)])
    drain(queue, None)
    now.later(1)
    assert queue.dead.edit(sent.sents[0].id, payload={"a": 3})
    drain(queue, None)
    assert list(group_of(queue, sent.id).results()) == [4]


def test_result_of_another_message_with_the_id_of_a_member_is_not_that_of_the_member(
    make: Make, drain: Drain, now: Now
):
    queue = make("one-shard", shards=1)
    adding = task(queue, add, results=3600)
    queue.send_many([adding.options(id="a").message(1)])
    drain(queue, None)
    now.later(1)
    first = queue.send_group([adding.options(id="a", delay=60).message(2), adding.options(id="b", delay=60).message(3)])
    running, _ = group_of(queue, first.id).results(return_exceptions=True)
    assert isinstance(running, ResultTimeout)
    queue.cancel("a")
    now.later(60)
    drain(queue, None)
    gone, value = group_of(queue, first.id).results(return_exceptions=True)
    assert (type(gone), value) == (NoResult, 4)
    queue.send_many([adding.options(id="b").message(9)])
    now.later(1)
    drain(queue, None)
    assert [type(each) for each in group_of(queue, first.id).results(return_exceptions=True)] == [NoResult, NoResult]


def test_group_that_was_unpickled_says_how_to_read_its_results(queue: Queue):
    group: Any = group_of(queue, queue.send_group(members(1)).id)
    if isinstance(group, Awaited):
        group = group.target
    copied = pickle.loads(pickle.dumps(group))
    assert copied == group
    if isinstance(queue, Queue):
        with pytest.raises(InvalidInput, match="was read by another program: use group"):
            list(copied.results())
