"""The slots of a schedule with a start, an end and jitter."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from delayq.model.cron_expression import recurrence
from delayq.model.slots import Slots

HOUR = 3_600_000
SPRING = 1_711_843_200_000  # 2024-03-31 00:00 UTC; an hour later, the clock in Berlin is set forward
EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "0 9,10 * * *",
    "30 2 * * *",
    "every 90s",
    "every 7h",
    "0 0 29 2 *",
]


def chain(slots: Slots, start: int, count: int) -> list[int]:
    """Return `count` slots after `start`, each found from the one before."""
    found: list[int] = []
    while len(found) < count and (following := slots.after(found[-1] if found else start)) is not None:
        found.append(following)
    return found


@pytest.mark.parametrize("jitter_ms", [1, HOUR, 366 * 24 * HOUR])
@pytest.mark.parametrize("when", EXPRESSIONS)
def test_jitter_delays_each_time_by_less_than_itself_and_never_to_the_next_one(when: str, jitter_ms: int):
    nominal = recurrence(when, "Europe/Berlin")
    times = chain(Slots(nominal, None, None, 0, ""), SPRING, 20)
    found = chain(Slots(nominal, times[0], None, jitter_ms, "jobs/tick"), SPRING - HOUR, 19)
    assert len(found) == 19
    for (time, following), slot in zip(pairwise(times), found, strict=True):
        assert time <= slot < min(time + jitter_ms, following)


@pytest.mark.parametrize("when", EXPRESSIONS)
def test_slot_is_the_same_wherever_it_is_computed_from(when: str):
    slots = Slots(recurrence(when, "Europe/Berlin"), None, None, 5 * HOUR, "jobs/tick")
    known = chain(slots, SPRING, 12)
    chance = random.Random(7)
    for before, slot in pairwise(known):
        for ms in {before, slot - 1, *(chance.randrange(before, slot) for _ in range(5))}:
            assert slots.after(ms) == slot


class Counted:
    """The times of an expression, with a count of the lookups."""

    def __init__(self, when: str) -> None:
        self._nominal, self.asked = recurrence(when, "Europe/Berlin"), 0

    def after(self, ms: int) -> int | None:
        self.asked += 1
        return self._nominal.after(ms)


@pytest.mark.parametrize("jitter_ms", [0, 1, 20_000, HOUR, 30 * HOUR])
@pytest.mark.parametrize("when", [*EXPRESSIONS, "* 9 * * *", "0 9 * * 1", "*/10 * * * * *"])
def test_next_slot_is_the_earliest_of_all_slots(when: str, jitter_ms: int):
    nominal, chance = recurrence(when, "Europe/Berlin"), random.Random(f"{when} {jitter_ms}")
    start = SPRING - chance.randrange(50 * HOUR)
    times = chain(Slots(nominal, start, None, 0, ""), 0, 100)
    slots = Slots(nominal, start, times[-2], jitter_ms, "jobs/tick")
    plain = [slots.nominally_after(time - 1) for time in times[:-1]]
    known = [slot for slot in plain if slot is not None]
    assert known == sorted(set(known))
    for ms in (start - 1, *times[:20], *known[:20], *(chance.randrange(start, known[-1]) for _ in range(50))):
        assert slots.after(ms) == min((slot for slot in known if slot > ms), default=None)


@pytest.mark.parametrize(("when", "jitter_ms"), [("0 9 * * *", HOUR), ("@hourly", HOUR), ("* * * * *", 30_000)])
def test_next_slot_asks_the_expression_no_more_than_four_times(when: str, jitter_ms: int):
    counted = Counted(when)
    assert len(chain(Slots(counted, None, None, jitter_ms, "jobs/tick"), SPRING, 50)) == 50
    assert counted.asked <= 50 * 4


def test_jitter_spreads_schedules_evenly():
    nominal = recurrence("@hourly")
    slots = [Slots(nominal, None, None, HOUR, f"tenant-{number}/clean").after(SPRING - 1) for number in range(3000)]
    counts = Counter(((slot or 0) - SPRING) // (HOUR // 6) for slot in slots)
    assert set(counts) == set(range(6))
    assert all(400 < count < 600 for count in counts.values())


def test_jitter_is_the_same_in_each_version():
    slots = Slots(recurrence("@hourly"), None, None, HOUR, "jobs/tick")
    assert chain(slots, SPRING, 3) == [
        1_711_843_383_884,
        1_711_849_353_899,
        1_711_850_810_975,
    ]


@pytest.mark.parametrize("jitter_ms", [0, 1, HOUR])
def test_nothing_fires_before_the_start_or_after_the_end(jitter_ms: int):
    nominal = recurrence("*/20 * * * *")
    start, end = SPRING + HOUR, SPRING + 2 * HOUR
    found = chain(Slots(nominal, start, end, jitter_ms, "jobs/tick"), 0, 99)
    assert len(found) == 4
    assert start <= found[0]
    assert found[-1] <= end
    assert Slots(nominal, start, end, jitter_ms, "jobs/tick").after(end) is None
    assert Slots(nominal, start + 1, end - 1, jitter_ms, "jobs/tick").after(found[1]) == found[2]


def test_slot_with_a_past_nominal_time_can_be_skipped():
    slots = Slots(recurrence("@hourly"), None, None, HOUR, "jobs/tick")
    slot = slots.after(SPRING - 1)
    assert slot is not None
    assert slots.after(slot - 1) == slot
    assert slots.nominally_after(slot - 1) == slots.after(slot)
