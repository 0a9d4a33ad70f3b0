"""The checker names exactly what is wrong with a history."""

from __future__ import annotations

import pytest

from tests.harness.chaos.histories import (
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
from tests.harness.chaos.history import Kind


def test_message_handled_once_is_correct() -> None:
    verdict = judged(sent(), delivered(2), finished(3))
    assert wrong(verdict) == {}
    assert (verdict.sends, verdict.deliveries, verdict.duplicates, verdict.buried) == (1, 1, 0, 0)
    assert verdict.worst_recovery == 0


def test_empty_history_is_correct() -> None:
    assert wrong(judged()) == {}


def test_acknowledged_message_that_was_never_received_is_lost() -> None:
    assert wrong(judged(sent())) == {"lost": ["m"]}


def test_acknowledged_message_whose_handler_never_ended_is_lost() -> None:
    assert wrong(judged(sent(), delivered(2), fault(3, A))) == {"lost": ["m"]}


def test_message_that_failed_and_was_not_retried_is_lost() -> None:
    assert wrong(judged(sent(), delivered(2), failed(3))) == {"lost": ["m"]}


def test_each_message_is_judged_separately() -> None:
    other = [seen(event.kind, event.at, id="other", ms=event.ms) for event in sent()]
    assert wrong(judged(sent(), delivered(2), finished(3), other)) == {"lost": ["other"]}


@pytest.mark.parametrize("kind", ["cancelled", "buried"])
def test_message_that_is_accounted_for_is_not_lost(kind: Kind) -> None:
    verdict = judged(sent(), seen(kind, 2))
    assert wrong(verdict) == {}
    assert verdict.buried == (kind == "buried")


def test_send_with_an_unknown_outcome_may_have_stored_nothing() -> None:
    verdict = judged(seen("attempted", 1))
    assert wrong(verdict) == {}
    assert verdict.sends == 0


def test_send_with_an_unknown_outcome_may_have_stored_the_message() -> None:
    assert wrong(judged(seen("attempted", 1), delivered(2), finished(3))) == {}


def test_delivered_message_must_not_be_lost_even_if_its_send_was_not_acknowledged() -> None:
    assert wrong(judged(seen("attempted", 1), delivered(2), fault(3, A))) == {"lost": ["m"]}


def test_failing_server_may_forget_what_it_has_not_acknowledged() -> None:
    assert wrong(judged(seen("attempted", 1), delivered(2), fault(3, SERVER))) == {}
    assert wrong(judged(seen("attempted", 5), fault(3, SERVER), recovered(4, SERVER), delivered(6))) == {"lost": ["m"]}


def test_message_that_was_never_sent_is_unexpected() -> None:
    assert wrong(judged(delivered(2), finished(3))) == {"unexpected": ["m"]}


def test_message_whose_only_send_was_refused_is_unexpected() -> None:
    assert wrong(judged(seen("attempted", 1), seen("refused", 1.5), delivered(2), finished(3))) == {"unexpected": ["m"]}


def test_refused_send_that_stored_nothing_is_correct() -> None:
    assert wrong(judged(seen("attempted", 1), seen("refused", 1.5))) == {}


def test_message_is_expected_if_only_one_of_its_sends_was_refused() -> None:
    calls = [seen("attempted", 1), seen("attempted", 1.2), seen("refused", 1.5)]
    assert wrong(judged(calls, delivered(2), finished(3))) == {}


def test_message_before_its_due_time_by_the_servers_clock_is_early() -> None:
    assert wrong(judged(sent(due=3), delivered(3.5, ms=2999.9), finished(4))) == {"early": ["m"]}
    assert wrong(judged(sent(due=3), delivered(3.5, ms=3000.0), finished(4))) == {}


def test_message_before_its_due_time_by_the_machines_clock_is_early() -> None:
    assert wrong(judged(sent(due=3), delivered(2.5, ms=3000.0), finished(4))) == {"early": ["m"]}


def test_message_at_its_due_time_is_not_early() -> None:
    assert wrong(judged(sent(due=3), delivered(3), finished(4))) == {}


def test_any_delivery_can_be_early() -> None:
    second = delivered(5, B, 2, ms=2500.0)
    assert wrong(judged(sent(due=3), delivered(3.5), failed(4), second, finished(6, B, 2))) == {"early": ["m"]}


def test_due_time_of_a_later_send_does_not_apply_to_an_earlier_one() -> None:
    again = [seen("attempted", 3), seen("sent", 3.1, ms=9000.0)]
    assert wrong(judged(seen("attempted", 1), delivered(2), finished(2.5), again)) == {}
    assert wrong(judged(seen("attempted", 1), again, delivered(8), finished(8.5))) == {"early": ["m"]}


def test_send_repeated_while_the_server_failed_has_the_due_time_of_its_last_try() -> None:
    slow = [seen("attempted", 3), delivered(4), finished(4.5), seen("sent", 5, ms=9000.0)]
    assert wrong(judged(slow)) == {"early": ["m"]}
    assert wrong(judged(slow, fault(3.5, SERVER), recovered(4.2, SERVER))) == {}
    assert wrong(judged(slow, fault(2, SERVER), recovered(2.5, SERVER))) == {}  # in flight at that moment
    assert wrong(judged(slow, fault(1, SERVER), recovered(1.5, SERVER))) == {"early": ["m"]}
    assert wrong(judged(slow, fault(6, SERVER))) == {"early": ["m"]}


def test_retry_before_its_wait_is_over_is_early() -> None:
    tried = [*sent(), delivered(2), failed(3, wait=2)]
    assert wrong(judged(tried, delivered(4.9, B, 2), finished(5, B, 2))) == {"early": ["m"]}
    assert wrong(judged(tried, delivered(5, B, 2), finished(6, B, 2))) == {}


def test_every_retry_has_to_wait() -> None:
    tried = [*sent(), delivered(2), failed(3, wait=2), delivered(6, B, 2), failed(7, B, 2, wait=2)]
    assert wrong(judged(tried, delivered(8, C, 3), finished(9, C, 3))) == {"early": ["m"]}


def test_late_failure_causes_no_wait() -> None:
    lost = [delivered(2), fault(3, A), recovered(5, A), delivered(5.1, B, 2), fault(6, B)]
    late = failed(6.5, wait=60)
    assert wrong(judged(sent(), lost, late, delivered(8, C, 3), finished(9, C, 3))) == {}


def test_retry_may_start_when_the_lease_of_an_unreported_failure_ends() -> None:
    tried = [*sent(), delivered(2), failed(3, wait=60), fault(3.1, A)]
    assert wrong(judged(tried, delivered(4.9, B, 2), finished(5, B, 2))) == {}


def test_delivery_after_a_cancel_is_a_resurrection() -> None:
    assert wrong(judged(sent(), seen("cancelled", 2), delivered(3), finished(4))) == {"resurrected": ["m"]}


def test_delivery_before_a_cancel_is_not_a_resurrection() -> None:
    assert wrong(judged(sent(), delivered(2), failed(3), seen("cancelled", 4))) == {}


def test_other_events_after_a_cancel_are_not_deliveries() -> None:
    assert wrong(judged(sent(), seen("cancelled", 2), seen("settled", 3, note="stale"))) == {}


def test_message_sent_again_after_a_cancel_may_be_delivered() -> None:
    assert wrong(judged(sent(), seen("cancelled", 2), sent(at=3, due=3), delivered(4), finished(5))) == {}


def test_verdict_contains_every_figure() -> None:
    said = str(judged(sent(), delivered(2), fault(3, A), delivered(5, B, 2), finished(6, B, 2)))
    assert "sends 1  deliveries 2  duplicates 1  dead 0  lost 0  unexpected 0" in said
    assert "early 0" in said
    assert "worst recovery 3.00 s" in said
