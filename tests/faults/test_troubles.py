"""Which duplicates and which unseen attempts a fault explains."""

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
from tests.harness.chaos.history import Event


def test_second_delivery_without_a_fault_is_unexplained() -> None:
    verdict = judged(sent(), delivered(2), finished(3), delivered(4, B, 2), finished(5, B, 2))
    assert wrong(verdict) == {"unexplained": ["m"]}
    assert verdict.duplicates == 1


def test_retry_of_a_failed_delivery_is_not_a_duplicate() -> None:
    verdict = judged(sent(), delivered(2), failed(3), delivered(4, B, 2), finished(5, B, 2))
    assert wrong(verdict) == {}
    assert verdict.duplicates == 0


def test_failure_of_another_delivery_does_not_excuse_a_duplicate() -> None:
    late = [delivered(2), delivered(4, B, 2), failed(5), delivered(6, C, 3), finished(7, C, 3)]
    verdict = judged(sent(), fault(3, A), late)
    assert wrong(verdict) == {"unexplained": ["m"]}  # the third delivery: nothing happened to B
    assert verdict.duplicates == 2


def test_kill_explains_the_duplicate_of_a_running_delivery() -> None:
    verdict = judged(sent(), delivered(2), fault(3, A), delivered(5, B, 2), finished(6, B, 2))
    assert wrong(verdict) == {}
    assert verdict.duplicates == 1


def test_kill_explains_the_duplicate_of_a_delivery_that_had_just_ended() -> None:
    assert wrong(judged(sent(), delivered(2), finished(2.5), fault(3, A), delivered(5, B, 2), finished(6, B, 2))) == {}


def test_kill_does_not_explain_the_duplicate_of_a_delivery_that_ended_long_before() -> None:
    again = [delivered(8, B, 2), finished(9, B, 2)]
    assert wrong(judged(sent(), delivered(2), finished(3), fault(5, A), again)) == {"unexplained": ["m"]}


def test_kill_does_not_explain_a_duplicate_that_came_before_it() -> None:
    again = [delivered(3, B, 2), finished(4, B, 2)]
    assert wrong(judged(sent(), delivered(2), again, fault(5, A))) == {"unexplained": ["m"]}


def test_kill_of_another_process_explains_nothing() -> None:
    again = [delivered(5, B, 2), finished(6, B, 2)]
    assert wrong(judged(sent(), delivered(2), fault(3, C), again)) == {"unexplained": ["m"]}


def test_stop_explains_the_duplicate_of_a_delivery_running_during_it() -> None:
    stop = [fault(3, A), recovered(7, A)]
    assert wrong(judged(sent(), delivered(2), stop, delivered(5, B, 2), finished(6, B, 2), finished(7.1))) == {}


def test_message_started_just_after_a_trouble_may_have_been_handed_out_during_it() -> None:
    trouble = [fault(2, SERVER), recovered(3, SERVER)]
    assert wrong(judged(sent(), trouble, delivered(3.5), finished(4), delivered(6, B, 2), finished(7, B, 2))) == {}


def test_delivery_starts_with_its_handler_not_with_the_claim() -> None:
    again = [delivered(5, B, 2, ms=2900.0), finished(6, B, 2)]
    assert wrong(judged(sent(), delivered(2), fault(3, A), again)) == {}


def test_stop_that_had_ended_explains_nothing() -> None:
    stop = [fault(1, A), recovered(2, A)]
    again = [delivered(9, B, 2), finished(9.5, B, 2)]
    assert wrong(judged(sent(), stop, delivered(4), again)) == {"unexplained": ["m"]}


def test_server_trouble_explains_the_duplicates_of_every_process() -> None:
    trouble = [fault(3, SERVER), recovered(4, SERVER)]
    assert wrong(judged(sent(), delivered(2), finished(3.5), trouble, delivered(5, B, 2), finished(6, B, 2))) == {}


def test_server_trouble_that_had_ended_explains_nothing() -> None:
    trouble = [fault(1, SERVER), recovered(2, SERVER)]
    again = [delivered(5, B, 2), finished(6, B, 2)]
    assert wrong(judged(sent(), trouble, delivered(4), finished(4.5), again)) == {"unexplained": ["m"]}


def test_each_of_several_duplicates_needs_an_explanation() -> None:
    twice = [delivered(5, B, 2), finished(6, B, 2), delivered(8, C, 3), finished(9, C, 3)]
    verdict = judged(sent(), delivered(2), fault(3, A), twice)
    assert wrong(verdict) == {"unexplained": ["m"]}
    assert verdict.duplicates == 2


def test_handled_message_among_dead_letters_is_unexplained_unless_its_consumer_was_lost() -> None:
    handled = [*sent(), delivered(2), finished(3)]
    assert wrong(judged(handled, seen("buried", 9))) == {"unexplained": ["m"]}
    verdict = judged(handled, fault(3.1, A), seen("buried", 9))
    assert wrong(verdict) == {}
    assert verdict.duplicates == 0  # no handler had it twice


def test_message_that_used_up_its_retries_may_be_dead() -> None:
    assert wrong(judged(sent(), delivered(2), failed(3), seen("buried", 9, attempt=1))) == {}


def test_requeued_dead_letter_may_be_delivered_again() -> None:
    died = [delivered(2), failed(3), seen("buried", 4, attempt=1)]
    verdict = judged(sent(), died, delivered(5, B, 2), finished(6, B, 2))
    assert wrong(verdict) == {}
    assert verdict.duplicates == 0


def test_settling_another_message_does_not_end_a_handler() -> None:
    running = [delivered(2), seen("settled", 2.5, A, attempt=1, note="extended"), fault(6, A)]
    assert wrong(judged(sent(), running, delivered(8, B, 2), finished(9, B, 2))) == {}


def test_unseen_attempt_needs_an_explanation() -> None:
    second = [delivered(5, B, 2), finished(6, B, 2)]
    assert wrong(judged(sent(), second)) == {"unexplained": ["m"]}
    assert wrong(judged(sent(), fault(6.5, A), second)) == {"unexplained": ["m"]}
    assert wrong(judged(sent(), fault(3, A), second)) == {}


def test_unseen_attempt_between_two_others_needs_an_explanation() -> None:
    third = [delivered(5, B, 3), finished(6, B, 3)]
    assert wrong(judged(sent(), delivered(2), failed(3), third)) == {"unexplained": ["m"]}
    assert wrong(judged(sent(), delivered(2), failed(3), fault(4, C), third)) == {}


def test_unseen_attempt_before_a_death_needs_an_explanation() -> None:
    assert wrong(judged(sent(), seen("buried", 9, attempt=2))) == {"unexplained": ["m"]}
    assert wrong(judged(sent(), fault(3, A), seen("buried", 9, attempt=2))) == {}
    found_late = seen("buried", 9, attempt=2, ms=2000.0, wall_ms=9000.0)
    assert wrong(judged(sent(), fault(3, A), found_late)) == {"unexplained": ["m"]}


def test_fault_explains_only_the_loss_of_a_lease_held_at_that_time() -> None:
    second = [delivered(8, B, 2, due_ms=7000.0), finished(9, B, 2)]  # the lease lasted from 5 or before until 7
    assert wrong(judged(sent(), fault(5.5, A), second, lease=LEASE)) == {}
    assert wrong(judged(sent(), fault(3, A), second, lease=LEASE)) == {"unexplained": ["m"]}
    assert wrong(judged(sent(), fault(7.5, A), second, lease=LEASE)) == {"unexplained": ["m"]}


def test_any_earlier_fault_explains_the_loss_of_an_unknown_lease() -> None:
    ended, unknown = delivered(8, B, 2, due_ms=7000.0), delivered(8, B, 2)
    assert wrong(judged(sent(), fault(1.5, A), ended, finished(9, B, 2))) == {}
    assert wrong(judged(sent(), fault(1.5, A), unknown, finished(9, B, 2), lease=LEASE)) == {}


def test_lease_may_have_started_during_server_trouble() -> None:
    second = [delivered(8, B, 2, due_ms=7000.0), finished(9, B, 2)]
    assert wrong(judged(sent(), fault(2, SERVER), recovered(6, SERVER), second, lease=LEASE)) == {}
    over = judged(sent(), fault(2, SERVER), recovered(3, SERVER), second, lease=LEASE)
    assert wrong(over) == {"unexplained": ["m"]}


@pytest.mark.parametrize("attempt", [1, 2])
def test_attempt_number_that_does_not_rise_is_not_a_fencing_token(attempt: int) -> None:
    tried = [*sent(), delivered(2, A, 1), failed(3, A, 1), delivered(4, B, 2), failed(5, B, 2)]
    verdict = judged(tried, delivered(6, C, attempt), finished(7, C, attempt))
    assert wrong(verdict) == {"unfenced": ["m"]}


def test_kill_does_not_excuse_two_deliveries_of_one_attempt() -> None:
    again = [delivered(5, B, 1), finished(6, B, 1)]
    assert wrong(judged(sent(), delivered(2), fault(3, A), again)) == {"unfenced": ["m"]}
    assert wrong(judged(sent(), delivered(2), again, fault(4, B))) == {"unexplained": ["m"], "unfenced": ["m"]}


def test_returned_delivery_keeps_its_attempt_number() -> None:
    back = [delivered(2), seen("released", 3, A, attempt=1)]
    verdict = judged(sent(), back, delivered(4, B, 1), finished(5, B, 1))
    assert wrong(verdict) == {}
    assert verdict.duplicates == 0


def test_resent_message_starts_with_attempt_one() -> None:
    gone = [delivered(2), failed(3), seen("cancelled", 4)]
    assert wrong(judged(sent(), gone, sent(at=5, due=5), delivered(6, B, 1), finished(7, B, 1))) == {}


def test_failing_server_may_have_forgotten_attempts() -> None:
    trouble = [fault(3, SERVER), recovered(4, SERVER)]
    assert wrong(judged(sent(), delivered(2), trouble, delivered(5, B, 1), finished(6, B, 1))) == {}
    before = [fault(0.5, SERVER), recovered(1.5, SERVER)]
    again = [delivered(5, B, 1), finished(6, B, 1)]
    assert wrong(judged(sent(), before, delivered(3), failed(4), again)) == {"unfenced": ["m"]}


def test_handler_may_start_just_after_the_server_forgot_its_attempt() -> None:
    trouble = [fault(3, SERVER), recovered(4, SERVER)]
    assert wrong(judged(sent(), trouble, delivered(4.5), failed(5), delivered(6, B, 1), finished(7, B, 1))) == {}


def test_server_forgets_no_attempts_before_its_trouble() -> None:
    again = [delivered(5, B, 1), finished(6, B, 1), fault(7, SERVER)]
    assert wrong(judged(sent(), delivered(2), failed(3), again)) == {"unfenced": ["m"]}


def test_stopped_process_may_start_late() -> None:
    stop = [fault(2, A), recovered(6, A)]
    late = judged(sent(), stop, delivered(4, B, 2), finished(5, B, 2), delivered(6.1, A, 1), finished(6.2, A, 1))
    assert "unfenced" not in wrong(late)


def unstarted(at: float, attempt: int, due_ms: float) -> Event:
    return seen("unstarted", at, B, attempt=attempt, ms=at * 1000 + 0.7, due_ms=due_ms)


def test_message_returned_behind_others_was_lost_before() -> None:
    back = [unstarted(6, 3, 4000.0), unstarted(8, 3, 6000.0)]
    third = [delivered(20, C, 3, due_ms=8000.0), finished(21, C, 3)]
    begun = [*sent(), delivered(1.5), failed(1.6), *third]
    assert wrong(judged(begun, fault(3, A), back, lease=LEASE)) == {}
    assert wrong(judged(begun, fault(7, A), back, lease=LEASE)) == {"unexplained": ["m"]}
    assert wrong(judged(begun, fault(3, A), lease=LEASE)) == {"unexplained": ["m"]}
    assert wrong(judged(begun, fault(3, A), back[:1], lease=LEASE)) == {"unexplained": ["m"]}  # where was it after 6?


def test_return_says_nothing_about_later_attempts() -> None:
    back = [unstarted(6, 3, 4000.0)]
    fourth = [delivered(20, C, 4, due_ms=8000.0), finished(21, C, 4)]  # the process that returned it has not noted it
    begun = [*sent(), delivered(1.5), failed(1.6), *back, *fourth]
    assert wrong(judged(begun, fault(3, A), lease=LEASE)) == {"unexplained": ["m"]}
    assert wrong(judged(begun, fault(3, A), fault(6.1, B), lease=LEASE)) == {}


def test_recovery_of_a_message_returned_behind_others_starts_with_its_lost_lease() -> None:
    back = unstarted(6, 3, 4000.0)
    third = [delivered(7, C, 3, due_ms=6000.0), finished(7.1, C, 3)]
    begun = [*sent(), delivered(1.5), failed(1.6), back, *third]
    assert judged(begun, fault(3, A), fault(5, A), lease=LEASE).worst_recovery == pytest.approx(4.1)
