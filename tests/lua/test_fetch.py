from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW, RawQueue

STORED = {"a": "1234", "b": "12", "c": "12345678", "d": "1"}


def fetched(queue: RawQueue, ids: list[str], most: int, least: int = 1) -> list[str | None]:
    return [each and each.decode() for each in queue.fetch(ids, most, least)]


@pytest.mark.parametrize(
    ("most", "least", "expected"),
    [
        (100, 1, ["1234", "12", "12345678", "1"]),
        (14, 1, ["1234", "12", "12345678"]),
        (13, 1, ["1234", "12"]),
        (6, 0, ["1234", "12"]),
        (1, 1, ["1234"]),
        (1, 2, ["1234", "12"]),
        (3, 0, []),
    ],
)
def test_envelopes_are_read_until_the_next_exceeds_the_limit(queue, most, least, expected):
    queue.given(unack=dict.fromkeys(STORED, NOW), messages=STORED)
    before = queue.state()
    assert fetched(queue, list(STORED), most, least) == expected
    assert queue.state() == before


def test_missing_or_overwritten_envelope_is_empty_and_the_next_one_is_read(queue):
    queue.given(messages={"b": "B"})
    queue.redis.sadd(queue.keys.message("c"), "mine")
    assert fetched(queue, ["a", "c", "b"], 1) == [None, None, "B"]
