from __future__ import annotations

import pytest

from delayq.errors import InvalidName
from delayq.model.placement import STATES, shard_of
from delayq.protocol.queue_keys import QueueKeys

NAMES = (*STATES, "attempts", "errors", "reasons", "cancelled", "bell", "timer", "watch", "stats", "meta")


def test_keys_of_a_queue_have_its_name_as_their_hash_tag():
    keys = QueueKeys("delayq", "emails")
    assert {getattr(keys, name) for name in NAMES} == {f"delayq:{{emails}}:{name}" for name in NAMES}
    assert keys.message("order-42") == "delayq:{emails}:msg:order-42"


def test_keys_of_further_shards_have_their_number():
    assert QueueKeys("dq", "emails", 3).pending == "dq:{emails#3}:pending"


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_its_key(state):
    assert QueueKeys("p", "q").state(state) == f"p:{{q}}:{state}"


@pytest.mark.parametrize(("prefix", "name"), [("", "q"), ("p", ""), ("p{", "q"), ("p", "q#1"), ("p", "q\n")])
def test_names_are_checked(prefix: str, name: str):
    with pytest.raises(InvalidName):
        QueueKeys(prefix, name)


def test_no_two_queues_share_a_key():
    queues = [("p", "q"), ("p", "q:pending"), ("p:{q}", "x"), ("p", "q#1")]
    valid = [QueueKeys(prefix, name) for prefix, name in queues[:2]] + [QueueKeys("p", "q", 1), QueueKeys("p", "q", 11)]
    keys = [getattr(each, name) for each in valid for name in NAMES]
    assert len(set(keys)) == len(keys)


def test_shard_of_an_id_never_changes():
    """If another version spread ids differently, stored messages would not be found."""
    check_value_of_crc32 = 0xCBF43926
    assert shard_of("123456789", 1000) == check_value_of_crc32 % 1000
    assert [shard_of(message_id, 7) for message_id in ("a", "b", "order-42", "é☃")] == [4, 4, 1, 1]


def test_ids_spread_evenly_over_shards():
    counts = [0] * 8
    for n in range(8000):
        counts[shard_of(f"order-{n}", 8)] += 1
    assert min(counts) > 900
    assert max(counts) < 1100


def test_one_shard_holds_all_ids():
    assert shard_of("a", 1) == 0
