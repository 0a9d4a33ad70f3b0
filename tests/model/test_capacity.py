from __future__ import annotations

import re

import pytest

from delayq.errors import InvalidInput
from delayq.model.capacity import GIB, SERVER_SECONDS, Load, capacity
from delayq.model.footprint import LAYOUTS, Shape, in_lake, reserved, waiting

DAY, YEAR = 86_400.0, 31_536_000.0
LOAD = Load(messages=10**9, shape=Shape(300), spread=YEAR, horizon=7200)


def test_lake_leaves_in_redis_what_is_due_within_the_horizon_and_an_hour():
    found = capacity(LOAD)
    assert found.all_in_redis.messages == 10**9
    assert found.lake.in_redis.messages == pytest.approx(10**9 * 3 * 3600 / YEAR, abs=1)


def test_message_from_a_lake_is_reserved_until_a_day_after_its_hour():
    held = capacity(LOAD).lake.in_redis
    assert held.reserved == pytest.approx(10**9 * (3 + 24) * 3600 / YEAR, abs=1)
    marks = reserved(held.reserved, LOAD.shape._replace(id=16), LAYOUTS["7.0"])
    assert held.redis_bytes == waiting(held.messages, LOAD.shape, LAYOUTS["7.0"]) + marks


def test_horizon_as_long_as_the_spread_keeps_all_messages_in_redis():
    assert capacity(LOAD._replace(horizon=YEAR)).lake.in_redis.messages == 10**9


def test_number_of_servers_is_the_smallest_that_fits():
    for memory in (4 * GIB, 16 * GIB, 64 * GIB):
        holding = capacity(LOAD._replace(server_memory=memory)).all_in_redis
        each = waiting(-(-(10**9) // holding.servers), LOAD.shape, LAYOUTS["7.0"])
        more = waiting(-(-(10**9) // (holding.servers - 1)), LOAD.shape, LAYOUTS["7.0"])
        assert each <= 0.75 * memory < more


def test_peak_rate_decides_the_servers_and_the_hours_in_redis():
    calm, busy = capacity(LOAD), capacity(LOAD._replace(rate=200_000.0))
    assert busy.lake.in_redis.messages == min(10**9, 200_000 * 3 * 3600)
    assert capacity(LOAD._replace(rate=2000.0)).lake.in_redis.messages == 2000 * 3 * 3600
    assert busy.lake.hydrate_seconds == pytest.approx(calm.lake.hydrate_seconds * 200_000 * YEAR / 10**9, rel=1e-3)
    small = Load(messages=10**6, shape=Shape(20), spread=DAY, horizon=3600, rate=200_000.0)
    assert capacity(small).all_in_redis.servers == 3  # one would be enough for the memory
    assert 200_000 * SERVER_SECONDS / 3 < 0.5


def test_reserved_ids_take_memory():
    plain, unique = capacity(LOAD).all_in_redis, capacity(LOAD._replace(unique_for=DAY)).all_in_redis
    assert (plain.reserved, unique.reserved) == (0, 10**9)
    assert 1.2 < unique.redis_bytes / plain.redis_bytes < 1.3


def test_random_payloads_take_more_room_in_a_lake_than_text():
    for payload in (20, 300, 5000):
        text, random = (in_lake(1000, Shape(payload), is_text=is_text) for is_text in (True, False))
        assert text < random
        assert random >= 1000 * payload


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"messages": 0}, "0 messages is not between 1 and"),
        ({"messages": 10**13}, "messages is not between 1 and"),
        ({"shape": Shape(2**21)}, "a payload of 2,097,152 bytes is not between 0 and 1,048,576"),
        ({"shape": Shape(1, id=300)}, "an id of 300 bytes is not between 1 and 256"),
        ({"spread": 0.0}, "a spread of 0 s is not between 1 s and"),
        ({"horizon": 0.5}, "a horizon of 0.5 s is not between 1 s and"),
        ({"server_memory": 1000}, "1,000 bytes is too little memory for a server"),
        ({"rate": 31.0}, "a peak of 31/s is below the mean of 31.71/s, at which 1,000,000,000"),
    ],
)
def test_invalid_load_is_refused(changed: dict[str, object], expected: str):
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        capacity(LOAD._replace(**changed))  # type: ignore[arg-type]
