from __future__ import annotations

import contextlib
from typing import Any

import pytest

from delayq.errors import ServerError
from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME, receipts


def many(prefix: str, count: int) -> dict[str, int]:
    """Ids and their due times, earliest first."""
    return {f"{prefix}{i:04}": NOW - count + i for i in range(count)}


def test_ready_message_is_handed_out_under_a_lease(queue):
    queue.given(ready={"a": NOW})
    assert queue.ready_to_unack(10, LEASE) == (NOW, 0, ["a"], [NOW], [None], None, False, True)
    assert queue.state() == {"unack": {"a": NOW + LEASE}, "stats": {"delivered": 1, "late:0": 1}}


def test_due_retry_is_handed_out_with_its_attempts(queue):
    queue.given(retry={"a": NOW - 5}, attempts={"a": "2.1.1.0"}, errors={"a": "ValueError"})
    assert queue.ready_to_unack(10, LEASE) == (NOW, 0, ["a"], [NOW - 5], ["2.1.1.0"], None, False, True)
    assert queue.state() == {
        "unack": {"a": NOW + LEASE},
        "attempts": {"a": "2.1.1.0"},
        "errors": {"a": "ValueError"},
        "stats": {"delivered": 1, "late:3": 1},
    }


def test_retries_come_first_and_each_side_earliest_first(queue):
    queue.given(
        ready={"r1": NOW - 1, "r3": NOW - 3, "r2": NOW - 2},
        retry={"t1": NOW - 1, "t2": NOW - 2},
        attempts={"t1": "1.0.0.0", "t2": "2.0.0.0", "r2": "0.1.0.0"},
    )
    claimed = queue.ready_to_unack(10, LEASE)
    assert claimed.ids == ["t2", "t1", "r3", "r2", "r1"]
    assert claimed.dues_ms == [NOW - 2, NOW - 1, NOW - 3, NOW - 2, NOW - 1]
    assert claimed.deliveries == ["2.0.0.0", "1.0.0.0", None, "0.1.0.0", None]


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("due", "handed_out"), [(NOW - 1, 1), (NOW, 1), (NOW + 1, 0)])
def test_retry_is_not_handed_out_before_its_time(queue, due, handed_out):
    queue.now = NOW + 0.999
    queue.given(retry={"a": due})
    assert len(queue.ready_to_unack(10, LEASE).ids) == handed_out
    assert ("retry" in queue.state()) is not bool(handed_out)


def test_nothing_to_hand_out_changes_nothing(queue):
    queue.given(retry={"later": NOW + 1}, pending={"p": NOW})
    before = queue.state()
    queue.now = NOW + 0.25
    assert queue.ready_to_unack(10, LEASE) == (NOW, 250, [], [], [], None, False, False)
    assert queue.state() == before


def test_paused_queue_hands_out_nothing(queue):
    queue.given(ready={"a": NOW}, retry={"b": NOW}, meta={"paused": NOW - 1})
    before = queue.state()
    assert queue.ready_to_unack(10, LEASE) == (NOW, 0, [], [], [], None, False, False)
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("limit", [{}, {"concurrency": 1}])
def test_timed_pause_is_reported_and_is_not_a_limit(queue, limit):
    queue.given(ready={"a": NOW}, retry={"b": NOW}, meta={"paused": NOW - 1, "paused_until": NOW + 1} | limit)
    before = queue.state()
    assert queue.ready_to_unack(10, LEASE) == (NOW, 0, [], [], [], None, True, False)
    assert queue.state() == before


# -- fairness --------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
def test_new_messages_and_retries_share_a_claim(queue, subtests):
    for ready, retry, limit, delivered, taken in [  # taken: new ones, retries
        (9, 9, 4, 0, (2, 2)),
        (9, 9, 4, 1, (2, 2)),
        (9, 9, 5, 0, (3, 2)),
        (9, 9, 5, 1, (2, 3)),
        (9, 9, 1, 0, (1, 0)),
        (9, 9, 1, 1, (0, 1)),
        (9, 1, 4, 0, (3, 1)),
        (1, 9, 4, 0, (1, 3)),
        (9, 1, 5, 1, (4, 1)),
        (1, 9, 5, 0, (1, 4)),
        (9, 0, 4, 0, (4, 0)),
        (0, 9, 4, 0, (0, 4)),
        (1, 0, 1, 1, (1, 0)),
        (0, 1, 1, 0, (0, 1)),
        (2, 1, 9, 0, (2, 1)),
    ]:
        queue.clear()
        with subtests.test(ready=ready, retry=retry, limit=limit, delivered=delivered, taken=taken):
            queue.given(ready=many("new", ready), retry=many("old", retry))
            if delivered:
                queue.given(stats={"delivered": delivered})
            ids = queue.ready_to_unack(limit, LEASE).ids
            assert (sum(i.startswith("new") for i in ids), sum(i.startswith("old") for i in ids)) == taken


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("limit", [1, 3])
def test_odd_claims_favour_each_side_in_turn(queue, limit):
    queue.given(ready=many("new", 30), retry=many("old", 30))
    ids = [each for _ in range(6) for each in queue.ready_to_unack(limit, LEASE).ids]
    assert sum(i.startswith("old") for i in ids) == sum(i.startswith("new") for i in ids) == 3 * limit


# -- the bell --------------------------------------------------------------------------------------------------------


LEFT: list[tuple[dict[str, Any], int, list[str] | None]] = [
    ({"ready": {"a": NOW, "b": NOW}}, 1, RUNG),
    ({"ready": {"a": NOW, "b": NOW}}, 2, None),
    ({"retry": {"a": NOW, "b": NOW}}, 1, RUNG),
    ({"retry": {"a": NOW, "b": NOW}}, 2, None),
    ({"retry": {"a": NOW, "b": NOW + 1}}, 1, None),
    ({"ready": {"a": NOW}, "retry": {"b": NOW}}, 1, RUNG),
    ({"ready": {"a": NOW}, "retry": {"b": NOW}}, 2, None),
    ({"ready": {"a": NOW}}, 0, RUNG),
    ({"retry": {"a": NOW}}, 0, RUNG),
    ({"retry": {"a": NOW + 1}}, 0, None),
    ({"pending": {"a": NOW}}, 0, None),
    ({"ready": {"a": NOW}, "bell": RUNG}, 0, RUNG),
    ({"ready": {"a": NOW, "b": NOW}, "bell": RUNG}, 1, RUNG),
]


@pytest.mark.same_on_all_servers
def test_bell_rings_once_for_messages_that_a_claim_leaves(queue, subtests):
    for state, limit, bell in LEFT:
        queue.clear()
        with subtests.test(state=state, limit=limit, bell=bell):
            queue.given(**state)
            queue.ready_to_unack(limit, LEASE)
            assert queue.state().get("bell") == bell


def test_claim_without_room_only_passes_the_token_on(queue):
    queue.given(ready={"a": NOW}, retry={"b": NOW})
    assert queue.ready_to_unack(0, LEASE) == (NOW, 0, [], [], [], None, False, False)
    assert queue.state() == {"ready": {"a": NOW}, "retry": {"b": NOW}, "bell": RUNG}


# -- lateness --------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
def test_lateness_is_counted_in_powers_of_two(queue, subtests):
    for late, bucket in [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 3),
        (7, 3),
        (8, 4),
        (1000, 10),
        (1023, 10),
        (1024, 11),
        (-1, 0),
    ]:
        queue.clear()
        with subtests.test(late=late, bucket=bucket):
            queue.given(ready={"a": NOW - late})
            queue.ready_to_unack(1, LEASE)
            assert queue.state()["stats"] == {"delivered": 1, f"late:{bucket}": 1}


def test_lateness_counts_new_messages_and_retries_together(queue):
    queue.given(ready={"a": NOW, "b": NOW - 1}, retry={"c": NOW - 1}, stats={"delivered": 5, "late:1": 5})
    queue.ready_to_unack(10, LEASE)
    assert queue.state()["stats"] == {"delivered": 8, "late:0": 1, "late:1": 7}


# -- lease and receipt -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "lease_end"), [(NOW, NOW + 1), (NOW + 0.25, NOW + 1.25), (NOW + 0.008, NOW + 1.008)])
def test_lease_is_counted_from_the_delivery(queue, now, lease_end):
    queue.now = now
    queue.given(ready={"a": NOW})
    claimed = queue.ready_to_unack(1, 1)
    assert claimed.now_ms == NOW
    assert claimed.micros == round(now % 1 * 1000)
    assert queue.state()["unack"] == {"a": lease_end}


@pytest.mark.same_on_all_servers
def test_every_receipt_has_the_microsecond_of_its_delivery(queue):
    sampled = range(0, 1000, 13)
    for micros in sampled:
        queue.now = f"1790000000000.{micros:03}"
        queue.given(ready={f"m{micros}": NOW})
        claimed = queue.ready_to_unack(1, LEASE, "me", f"{micros:032}" if micros % 2 else "")  # odd for a consumer
        assert claimed.micros == micros
        queue.extend(f"m{micros}", f"0.0.0.0-{micros}", 2 * LEASE)
        assert queue.ack([(f"m{micros}", f"0.0.0.0-{micros}")]) == [1]
    assert queue.state()["stats"]["acked"] == len(sampled)


def test_microsecond_is_odd_for_a_consumer_and_even_for_a_program_that_receives(queue):
    for micros in (0, 1, 998, 999):
        queue.now = f"1790000000000.{micros:03}"
        queue.given(ready={"a": NOW, "b": NOW})
        assert queue.ready_to_unack(1, LEASE).micros == micros - micros % 2
        assert queue.ready_to_unack(1, LEASE, "me", f"{micros:032}").micros == micros - micros % 2 + 1
        queue.redis.delete(queue.keys.unack)


def test_receipt_is_valid_just_before_the_next_millisecond(queue):
    queue.now = NOW + 0.9996
    queue.given(ready={"a": NOW})
    claimed = queue.ready_to_unack(1, LEASE)
    assert queue.ack([("a", receipts(claimed)["a"])]) == [1]


def test_receipts_of_one_message_all_differ(queue):
    queue.send([("a", "+0", b"{}")])
    seen = []
    for _ in range(3):
        seen.append(queue.deliver("a"))
        queue.nack("a", seen[-1], 0)
        seen.append(queue.deliver("a"))
        queue.release("a", seen[-1], NOW)
        seen.append(queue.deliver("a"))
        queue.reject("a", seen[-1], "unwanted", counted=False)
        queue.requeue(["a"])
        seen.append(queue.deliver("a"))
        queue.replace("a", "+0", b"{}")
    assert len(set(seen)) == len(seen)


def test_claim_is_bounded_by_its_limit(queue):
    queue.given(ready=many("new", 600), retry=many("old", 401))
    claimed = queue.ready_to_unack(1000, LEASE)
    assert len(claimed.ids) == len(set(claimed.ids)) == 1000
    after = queue.state()
    assert after["unack"] == dict.fromkeys(claimed.ids, NOW + LEASE)
    assert len(after["ready"]) == 1
    assert "retry" not in after
    assert after["stats"]["delivered"] == 1000


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    queue.given(ready={"a": before})
    claimed = queue.ready_to_unack(1, LEASE)
    assert before <= claimed.now_ms <= queue.server_ms()
    assert queue.state()["unack"]["a"] == pytest.approx(claimed.now_ms + LEASE + claimed.micros / 1000, abs=0.0005)


# -- many at once ----------------------------------------------------------------------------------------------------


def test_unack_holds_only_what_is_handed_out(queue, subtests):
    for count in [1, 15, 16, 17, 18, 129, 500]:
        for held in [0, 1, 127, 128, 200]:
            queue.clear()
            with subtests.test(held=held, count=count):
                others, ready = {f"held{i}": NOW + 5 + i for i in range(held)}, many("new", count)
                queue.given(unack=others, ready=ready)
                claimed = queue.ready_to_unack(500, LEASE)
                assert (claimed.ids, claimed.dues_ms) == (list(ready), list(ready.values()))
                assert queue.state()["unack"] == others | dict.fromkeys(ready, NOW + LEASE)
                assert queue.ack([(each, receipt) for each, receipt in receipts(claimed).items()]) == [1] * count
                assert queue.state().get("unack", {}) == others


@pytest.mark.same_on_all_servers
def test_id_that_repeats_one_character_works(queue, subtests):
    for where in ["ready", "retry", "unack"]:
        for char in ["-", "x", "0", " ", "~"]:
            for length in [1, 64, 65, 66, 256]:
                queue.clear()
                with subtests.test(length=length, char=char, where=where):
                    strange = char * length
                    queue.given(ready=many("new", 20))
                    queue.given(**{where: {strange: NOW - 100}})
                    claimed = queue.ready_to_unack(500, LEASE)
                    assert (strange in claimed.ids) == (where != "unack")
                    assert queue.state()["unack"].keys() == {strange, *many("new", 20)}


@pytest.mark.same_on_all_servers
def test_claim_of_any_size_moves_nothing_when_unack_is_overwritten(queue, subtests):
    for command in ["SET {} text", "RPUSH {} a", "HSET {} a 1"]:
        for count in [3, 16, 17, 500]:
            queue.clear()
            with subtests.test(count=count, command=command):
                queue.given(ready=many("new", count), retry={"t": NOW})
                queue.redis.execute_command(*command.format(queue.keys.unack).split())
                before = {key: queue.redis.dump(key) for key in queue.redis.scan_iter()}
                with pytest.raises(ServerError, match="WRONGTYPE"):
                    queue.ready_to_unack(500, LEASE)
                assert {key: queue.redis.dump(key) for key in queue.redis.scan_iter()} == before


@pytest.mark.same_on_all_servers
def test_overwritten_statistics_or_bell_lose_no_message(queue, subtests):
    for count in [3, 20]:
        for name in ["attempts", "stats", "bell"]:
            queue.clear()
            with subtests.test(name=name, count=count):
                ready = many("new", count)
                queue.given(ready=ready, unack={"u": NOW})
                queue.redis.set(getattr(queue.keys, name), "text")
                with contextlib.suppress(ServerError):
                    queue.ready_to_unack(count - 1, LEASE)
                held = [queue.redis.zrange(getattr(queue.keys, each), 0, -1) for each in ("ready", "unack")]
                assert sorted([*held[0], *held[1]]) == sorted([*ready, "u"])


def test_claim_of_hundreds_from_both_sides_has_each_message_once(queue):
    queue.given(
        ready=many("new", 300), retry=many("old", 300), attempts={f"old{i:04}": f"{i + 1}.0.0.0" for i in range(300)}
    )
    claimed = queue.ready_to_unack(500, LEASE)
    assert claimed.ids == [*list(many("old", 300))[:250], *list(many("new", 300))[:250]]
    assert claimed.deliveries == [*(f"{i + 1}.0.0.0" for i in range(250)), *[None] * 250]
    after = queue.state()
    assert after["unack"] == dict.fromkeys(claimed.ids, NOW + LEASE)
    assert (list(after["retry"]), list(after["ready"])) == (list(many("old", 300))[250:], list(many("new", 300))[250:])
    assert after["bell"] == RUNG


def test_repeated_claim_gets_the_same_answer(queue):
    queue.given(ready={"a": NOW, "b": NOW}, attempts={"a": "1.0.0.0"})
    first = queue.ready_to_unack(1, LEASE, "me", f"{1:032}")
    state = queue.state()
    queue.now = NOW + 5
    assert queue.ready_to_unack(9, LEASE, "me", f"{1:032}") == first
    assert queue.state() == state
    assert queue.ready_to_unack(9, LEASE, "me", f"{2:032}").ids == ["b"]


def test_claim_that_arrives_after_a_later_one_hands_out_nothing(queue):
    queue.given(ready={"a": NOW, "b": NOW})
    assert queue.ready_to_unack(0, LEASE, "me", f"{2:032}").ids == []
    assert queue.ready_to_unack(9, LEASE, "me", f"{1:032}").ids == []
    assert queue.ready_to_unack(9, LEASE, "me", f"{7:016}{1:016}").ids == ["a", "b"]  # from another run


def test_claim_that_is_run_too_late_hands_out_nothing_and_leaves_no_reply(queue):
    queue.given(ready={"a": NOW, "b": NOW})
    state = queue.state()
    assert queue.ready_to_unack(9, LEASE, "me", f"{1:032}", NOW - 1)[:3] == (NOW, 0, [])
    assert queue.state() == state
    assert queue.ready_to_unack(1, LEASE, "me", f"{1:032}", NOW).ids == ["a"]
    queue.now = NOW + 9
    assert queue.ready_to_unack(1, LEASE, "me", f"{1:032}", NOW).ids == ["a"]  # a repetition gets its answer


def test_claim_that_arrives_after_the_end_of_its_run_hands_out_nothing(queue):
    queue.given(ready={"a": NOW, "b": NOW})
    mine, theirs = "a" * 16, "b" * 16
    assert queue.ready_to_unack(1, LEASE, "me", f"{mine}{1:016x}").ids == ["a"]
    assert queue.ready_to_unack(0, LEASE, "me", f"{theirs}{1:016x}").ids == []
    queue.end_claims("me", mine)
    for number in (0, 1, 2, 16**16 - 2):
        assert queue.ready_to_unack(9, LEASE, "me", f"{mine}{number:016x}").ids == []
    assert queue.ready_to_unack(9, LEASE, "me", f"{theirs}{2:016x}").ids == ["b"]


def test_claims_of_other_consumers_are_independent(queue):
    queue.given(ready={"a": NOW, "b": NOW})
    assert queue.ready_to_unack(1, LEASE, "me", f"{1:032}").ids == ["a"]
    assert queue.ready_to_unack(1, LEASE, "you", f"{1:032}").ids == ["b"]
    assert queue.ready_to_unack(1, LEASE).ids == []


def test_consumers_of_one_name_keep_the_answers_to_their_claims(queue):
    queue.send([(name, "+0", b"{}") for name in ("a", "b", "c")])
    queue.pending_to_ready()
    mine, theirs = f"{'a' * 16}{1:016x}", f"{'b' * 16}{1:016x}"
    first = queue.ready_to_unack(1, LEASE, "me", mine)
    assert queue.ready_to_unack(1, LEASE, "me", theirs).ids == ["b"]
    assert queue.ready_to_unack(1, LEASE, "me", mine) == first
    assert "c" in queue.state()["ready"]
