from __future__ import annotations

import pytest

STORED = {"a": "1234", "b": "12", "c": "12345678", "d": "1"}


@pytest.mark.parametrize(("most", "expected"), [(100, 4), (15, 4), (14, 3), (13, 2), (6, 2), (5, 1), (1, 1)])
def test_envelopes_are_counted_until_the_next_exceeds_the_limit(queue, most, expected):
    queue.given(messages=STORED)
    before = queue.state()
    assert queue.fitting(list(STORED), most) == expected
    assert queue.state() == before


def test_missing_or_overwritten_envelope_takes_no_bytes(queue):
    queue.given(messages={"b": "B"})
    queue.redis.sadd(queue.keys.message("c"), "mine")
    assert queue.fitting(["a", "c", "b"], 1) == 3
