"""How long recovery from a fault takes: the seconds until everything it hit is handled."""

from __future__ import annotations

import pytest

from tests.harness.chaos.histories import (
    LEASE,
    SERVER,
    A,
    B,
    C,
    delivered,
    failed,
    fault,
    finished,
    judged,
    recovered,
    seen,
    sent,
    wrong,
)


def test_recovery_lasts_from_the_fault_until_the_message_is_handled() -> None:
    assert judged(sent(), delivered(2), fault(3, A), delivered(5, B, 2), finished(6.5, B, 2)).worst_recovery == 3.5


def test_worst_recovery_is_the_longest_of_all_messages() -> None:
    hit = [delivered(2), fault(3, A), delivered(5, B, 2), finished(6, B, 2)]
    other = [seen(event.kind, event.at, event.pid, id="other", attempt=event.attempt) for event in hit if event.id]
    other[-1].at += 2
    assert judged(sent(), hit, other).worst_recovery == 5


def test_fault_that_hits_nothing_needs_no_recovery() -> None:
    assert judged(sent(), delivered(2), finished(3), fault(4, A)).worst_recovery == 0
    assert judged(sent(), fault(1.5, A), delivered(2), finished(9)).worst_recovery == 0


def test_recovery_from_a_stop_ends_with_the_first_finished_delivery() -> None:
    stop = [fault(3, A), recovered(8, A)]
    verdict = judged(sent(), delivered(2), stop, delivered(5, B, 2), finished(6, B, 2), finished(8.1))
    assert verdict.worst_recovery == 3


def test_recovery_restarts_at_the_next_fault_that_hits_the_message() -> None:
    twice = [delivered(2), fault(3, A), delivered(5, B, 2), fault(5.5, B), delivered(8, C, 3), finished(9, C, 3)]
    assert judged(sent(), twice).worst_recovery == 3.5  # not 6: from 5.5 on it belongs to the second fault


def test_recovery_of_an_unstarted_message_counts_from_the_last_fault_before() -> None:
    faults = [fault(3, A), fault(4, C)]
    assert judged(sent(), faults, delivered(6, B, 2), finished(7, B, 2)).worst_recovery == 3


def test_recovery_of_an_unstarted_message_counts_from_the_earliest_fault_that_may_have_hit_it() -> None:
    faults = [fault(2, A), fault(3.5, A), fault(4, C), fault(5.2, C)]
    second = [delivered(6, B, 2, due_ms=5000.0), finished(6.3, B, 2)]  # its lease lasted from 3 or before until 5
    assert judged(sent(), faults, second, lease=LEASE).worst_recovery == pytest.approx(2.8)


def test_recovery_of_an_unseen_delivery_is_found_between_other_deliveries_too() -> None:
    tried = [delivered(2), failed(3), fault(4, A)]
    third = [delivered(6, B, 3, due_ms=5500.0), finished(6.5, B, 3)]
    assert judged(sent(), tried, third, lease=LEASE).worst_recovery == pytest.approx(2.5)


def test_recovery_ends_with_the_failure_of_the_next_delivery() -> None:
    hit = [delivered(2), fault(3, A), delivered(5, B, 2), failed(5.5, B, 2)]
    assert judged(sent(), hit, delivered(7, C, 3), finished(8, C, 3)).worst_recovery == 2.5


def test_end_of_a_trouble_without_a_start_is_ignored() -> None:
    assert wrong(judged(recovered(1, A), sent(), delivered(2), finished(3))) == {}


def test_recovery_ends_when_the_message_dies_not_when_it_is_found_dead() -> None:
    letter = seen("buried", 60, attempt=1, ms=5000.0, wall_ms=60_000.0)
    assert judged(sent(), delivered(2), fault(3, A), letter).worst_recovery == pytest.approx(2)


def test_recovery_of_a_message_that_died_unseen_ends_with_its_death() -> None:
    letter = seen("buried", 60, attempt=1, ms=5000.0, wall_ms=60_000.0)
    assert judged(sent(), fault(3, A), letter).worst_recovery == pytest.approx(2)


def test_death_at_an_unknown_time_counts_when_it_is_found() -> None:
    letter = seen("buried", 9, attempt=1, wall_ms=9000.0)
    assert judged(sent(), delivered(2), fault(3, A), letter).worst_recovery == pytest.approx(6)


def test_handled_message_needs_no_recovery_even_if_buried_later() -> None:
    assert judged(sent(), delivered(2), finished(3), fault(5, A), seen("buried", 9)).worst_recovery == 0


def test_killing_the_producer_hits_no_message() -> None:
    assert judged(sent(), fault(1.2, 9), delivered(2), finished(3)).worst_recovery == 0


def test_second_fault_of_one_delivery_does_not_shorten_the_recovery_from_the_first() -> None:
    twice = [fault(3, SERVER), recovered(4, SERVER), fault(5, SERVER), recovered(6, SERVER)]
    assert judged(sent(), delivered(2), twice, finished(7)).worst_recovery == 4


def test_recovery_continues_across_unseen_attempts() -> None:
    assert judged(sent(), delivered(2), fault(3, A), delivered(8, B, 3), finished(9, B, 3)).worst_recovery == 6


def test_unseen_delivery_is_placed_before_the_one_that_reveals_it() -> None:
    after = [delivered(5, B, 2), fault(5.5, B), delivered(8, C, 3), finished(9, C, 3)]
    assert judged(sent(), fault(3, A), after).worst_recovery == 3.5


def test_late_end_of_a_delivery_does_not_end_the_next() -> None:
    stop = [delivered(2), fault(3, A), recovered(4.5, A), finished(5)]
    after = [delivered(4, B, 2), fault(6, B), delivered(9, C, 3), finished(10, C, 3)]
    assert judged(sent(), stop, after).worst_recovery == 4


def test_fault_just_before_a_lease_may_have_been_noted_early() -> None:
    second = [delivered(6, B, 2, due_ms=5000.0), finished(6.3, B, 2)]  # its lease lasted from 3 or before until 5
    verdict = judged(sent(), fault(2.2, A), fault(2.8, C), second, lease=LEASE)
    assert wrong(verdict) == {}
    assert verdict.worst_recovery == pytest.approx(3.5)
