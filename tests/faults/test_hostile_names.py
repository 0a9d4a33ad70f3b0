"""Another tenant's keys are out of reach: no two queues, shards, kinds or ids ever form the same key."""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from delayq import Queue, Reject, doctor
from delayq.consumer import Consumer
from delayq.errors import InvalidName
from delayq.model.placement import STATES
from delayq.model.validation import MAX_ID_BYTES, MAX_NAME_BYTES, check_id, check_queue_name
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.acl.telling import denials
from tests.harness.hostile import TEXTS, examples, texts
from tests.harness.servers import RedisServer

KINDS = [*STATES, "attempts", "errors", "reasons", "cancelled", "bell", "timer", "stats", "meta"]


def is_name(text: str) -> bool:
    with contextlib.suppress(InvalidName):
        return bool(check_queue_name(text))
    return False


def is_id(text: str) -> bool:
    with contextlib.suppress(InvalidName):
        return bool(check_id(text))
    return False


close = st.text("a:#{}*[]?\\ 1m s g", min_size=1, max_size=8)  # characters that keys are made of
names = st.one_of(texts, close, st.sampled_from(["a", "a:pending", "a:msg:b", "msg", "1", "a:1"])).filter(is_name)
ids = st.one_of(texts, close, st.sampled_from([*KINDS, "{b}", "a}:pending", "}:{b}:meta"])).filter(is_id)
masks = st.lists(st.booleans(), min_size=5, max_size=5)  # which parts of two places are equal
OTHER = [False] * 5
places = st.tuples(names, names, st.integers(0, 1023), st.sampled_from([*KINDS, "message"]), ids)
"""Prefix, queue, shard, kind of key, and message id, which only a message's key has."""


def key_of(place: tuple[str, str, int, str, str]) -> str:
    prefix, name, shard, kind, message_id = place
    keys = QueueKeys(prefix, name, shard)
    return keys.message(message_id) if kind == "message" else str(getattr(keys, kind))


def told_apart(place: tuple[str, str, int, str, str]) -> tuple[str | int, ...]:
    return place if place[3] == "message" else place[:4]


@pytest.mark.full
@examples
@given(places, places, masks)
@example(("p", "a", 0, "pending", "x"), ("p:{a}", "a", 0, "pending", "x"), OTHER)
@example(("p", "a", 0, "message", "b"), ("p", "a:msg", 0, "message", "b"), OTHER)
@example(("p", "a", 1, "pending", "x"), ("p", "a#1", 0, "pending", "x"), OTHER)
@example(("p", "a", 0, "message", "}:{b}:meta"), ("p", "b", 0, "meta", "x"), OTHER)
@example(("p", "a", 0, "message", "pending"), ("p", "a", 0, "pending", "x"), OTHER)
def test_equal_keys_belong_to_the_same_thing(one: Any, other: Any, mask: list[bool]) -> None:
    other = tuple(there if keeps else here for here, there, keeps in zip(other, one, mask, strict=True))
    assume(all(is_name(place[0]) and is_name(place[1]) and is_id(place[4]) for place in (one, other)))
    assert (key_of(one) == key_of(other)) is (told_apart(one) == told_apart(other))


@examples
@given(places)
def test_key_says_what_it_belongs_to(place: Any) -> None:
    prefix, name, shard, kind, message_id = place
    match = re.fullmatch(r"(?s)([^{}#]+):\{([^{}#]+)(?:#(\d+))?\}:(?:msg:(.*)|([a-z]+))", key_of(place))
    assert match is not None
    found_kind = "message" if match[4] is not None else match[5]
    assert (match[1], match[2], int(match[3] or 0), found_kind) == (prefix, name, shard, kind)
    assert match[4] in (None, message_id)


@examples
@given(places, ids)
def test_all_keys_of_a_shard_are_in_one_slot(place: Any, message_id: str) -> None:
    prefix, name, shard, *_ = place
    keys = QueueKeys(prefix, name, shard)
    slots = {key_slot(getattr(keys, kind).encode()) for kind in KINDS}
    assert slots == {key_slot(keys.message(message_id).encode())}


@examples
@given(texts | close, st.sampled_from([(check_queue_name, MAX_NAME_BYTES, "{}#"), (check_id, MAX_ID_BYTES, "")]))
def test_name_is_accepted_unchanged_or_refused_in_one_line(text: str, rule: Any) -> None:
    check, most, forbidden = rule
    try:
        assert check(text) == text
    except InvalidName as error:
        said = str(error)
    else:
        said = ""
        assert 1 <= len(text.encode()) <= most
        assert not set(text) & set(forbidden)
    assert "\n" not in said
    assert len(said) < 1000


TENANTS = [
    *(
        "a",
        "a:1",
        "a:pending",
        "a:msg",
        "a:msg:x",
        "1",
        "msg",
        "pending",
        "*",
        "a*",
        "a?",
        "[a]",
        "\\a",
        "é",
        "e\u0301",
    ),
    *("A", "a ", "a\u200b", "\u202ea", "ﬁ", "fi", "meta", "a:meta", "$(id)", "%s", "%7Ba%7D", "../a"),
]
PREFIXES = ["delayq", "delayq:", "delayq:a", "d"]
IDS = ["x", "pending", "{a}", "}:meta", "a}:pending", "{", "msg:x", "\\", "*", "..", "'", '"', "$1", "\u202e"]


def use(queue: Queue) -> None:
    """Take messages with such ids through every state."""
    for number, each in enumerate(IDS):
        queue.send(each, id=each, delay=60 if number % 5 == 0 else 0)
    queue.send("again", id=IDS[0], on_conflict="replace")

    def handle(message: Any) -> bool:
        if len(message.id) == 1:
            raise Reject(message.id)
        return len(message.id) % 2 == 0

    Consumer(queue, handle, concurrency=2).run(burst=True)
    queue.cancel(IDS[5])
    queue.reschedule(IDS[5], delay=5)
    queue.dead.requeue()
    queue.pause()
    queue.resume()


def test_queues_with_adversarial_names_never_touch_each_others_keys(any_server: RedisServer) -> None:
    """Each queue has a user who can only touch keys of its own pattern; the server refuses all others."""
    tenants = list(itertools.product(PREFIXES[:2], TENANTS))[:: 2 if any_server.version != "8.2" else 1]
    owned: list[set[bytes]] = []
    with any_server.client() as admin:
        for prefix, name in tenants:
            pattern = re.sub(r"([*?\[\]\\])", r"\\\1", f"{prefix}:{{{name}}}:").replace(" ", "?") + "*"
            admin.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">secret", f"~{pattern}", "+@all")
            before = contents(admin)
            with Queue(name, url=f"unix://tenant:secret@{any_server.socket}", prefix=prefix) as queue:
                use(queue)
                report = doctor.examine(queue)
            assert report.healthy, (prefix, name, report.findings)
            after = contents(admin)
            assert {key: after.get(key) for key in before} == before, (prefix, name)
            owned.append(set(after) - set(before))
    assert denials(any_server, "tenant") == []
    assert all(owned)


def contents(admin: Any) -> dict[bytes, bytes]:
    """Everything on the server, except keys that expire, such as timers and the names of claims."""
    pipe = admin.pipeline(transaction=False)
    keys = list(admin.scan_iter(count=1000))
    for key in keys:
        pipe.pttl(key).dump(key)
    replies = pipe.execute()
    dumps = zip(keys, replies[::2], replies[1::2], strict=True)
    return {key: dumped for key, ttl, dumped in dumps if ttl == -1}


def test_invalid_name_never_reaches_the_server(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        for wrong in (text for text in TEXTS if not is_name(text)):
            for name, prefix in ((wrong, "delayq"), ("emails", wrong)):
                with pytest.raises(InvalidName):
                    Queue(name, url=redis_server.url, prefix=prefix).send("x")
            assert client.dbsize() == 0, ascii(wrong)
