"""Targets are compared with the results, and what was not measured does not pass."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.targets import TargetVerdict, verdicts

PEERS = {
    "delayq": {"peer": "delayq", "language": "Python"},
    "bullmq_node": {"peer": "BullMQ", "language": "TypeScript"},
    "huey": {"peer": "Huey", "language": "Python"},
    "rq": {"peer": "RQ", "language": "Python"},
}


def results(workloads: dict[str, dict[str, dict[str, float]]] | None = None, **own: Any) -> dict[str, Any]:
    """Results as the runner writes them, from medians by workload, peer and figure."""
    cells = {
        name: {
            peer: {"figures": {figure: {"median": value, "max": 2 * value} for figure, value in figures.items()}}
            for peer, figures in peers.items()
        }
        for name, peers in (workloads or {}).items()
    }
    return {"peers": PEERS, "workloads": cells, "own": own}


def named(found: dict[str, Any], name: str) -> TargetVerdict:
    (verdict,) = [each for each in verdicts(found) if each.name == name]
    return verdict


def test_nothing_passes_that_was_not_measured():
    found = verdicts(results())
    assert {(each.passed, each.word) for each in found} == {(None, "not measured")}
    assert len(found) >= 30


def test_nothing_passes_that_failed_or_is_not_supported():
    found = results()
    found["workloads"] = {"drain": {"delayq": {"failed": "why"}, "huey": {"unsupported": "why"}}}
    assert {each.passed for each in verdicts(found)} == {None}


@pytest.mark.parametrize(
    ("value", "at_least", "passed"), [(10, True, True), (9.99, True, False), (10, False, True), (10.01, False, False)]
)
def test_figure_equal_to_the_bound_passes(value: float, at_least: bool, passed: bool):
    assert TargetVerdict("name", value, 10, at_least).passed is passed


def test_figure_and_bound_are_shown_with_their_unit():
    assert TargetVerdict("name", 0.123456, 60_000, True, "/s").shown == ("0.123 /s", "≥ 60,000 /s")
    assert TargetVerdict("name", None, 0, False).shown == ("–", "≤ 0")


def test_drain_is_compared_with_the_fastest_python_peer_and_with_node():
    drain = {key: {"per_second": rate} for key, rate in {"delayq": 90.0, "bullmq_node": 60, "huey": 8, "rq": 2}.items()}
    found = results({"drain": drain})
    best = named(found, "drain, relative to Huey, the fastest in Python")
    assert (best.value, best.passed) == (11.25, True)
    node = named(found, "drain, relative to BullMQ on Node")
    assert (node.value, node.passed) == (1.5, False)


def test_greatest_lateness_is_that_of_all_runs_and_the_others_are_medians():
    late = {"p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 11.0, "early": 0.0}
    found = results({"lateness": {"delayq": late, "celery": {"p50_ms": 0.5}}})
    assert named(found, "lateness, 50%").passed
    assert named(found, "lateness, maximum").value == 22.0
    assert named(found, "delivered early").passed
    assert named(found, "lateness, 50%, relative to Celery").value == 2.0
    assert named(found, "lateness, 99%, relative to Celery").value is None


def test_one_early_message_is_a_miss():
    assert named(results({"lateness": {"delayq": {"early": 1.0}}}), "delivered early").passed is False


def test_slowest_of_the_calls_counts():
    calls = {"stats": {"p99_ms": 0.2}, "cancel": {"p99_ms": 2.5}}
    found = results(backlog={"waiting": 1_000_000, "calls": calls, "of_empty": {"drain": 0.95}})
    assert named(found, "slowest call with 1,000,000 waiting, 99%").value == 2.5
    assert named(found, "drain with 1,000,000 waiting, relative to an empty queue").passed
    assert named(found, "drain with 10,000,000 waiting, relative to an empty queue").passed is None


def test_bulk_send_with_a_backlog_is_compared_with_the_bare_scripts():
    name = "send in bulk with 1,000,000 waiting, relative to what the bare scripts keep"
    backlog = {"waiting": 1_000_000, "rates": {"send_bulk": {"ratio": 0.6}}}
    found = results(backlog=backlog, rates={"send_bulk": {"ratio": 0.5}})
    assert named(found, name).value == pytest.approx(1.2)
    assert named(results(backlog=backlog), name).passed is None


def test_growth_is_a_share_of_the_initial_memory():
    found = results(growth={"bytes_at_10_percent": 100, "bytes_at_the_end": 103})
    verdict = named(found, "growth of a consumer's memory")
    assert verdict.value == pytest.approx(3)
    assert verdict.passed is False


def test_ratio_to_the_bare_scripts_is_the_measured_one():
    found = results(rates={"pull": {"per_second": {"median": 120_000}, "ratio": 0.9}})
    assert named(found, "receive and ack by 500").passed
    assert named(found, "receive and ack, relative to the bare scripts").passed


def test_idle_consumer_is_the_one_that_only_consumes():
    found = results({"idle": {"delayq": {"cpu_percent": 9.0}}}, idle_own={"one": {"cpu_percent": 0.4}})
    assert named(found, "an idle consumer").passed
    assert named(found, "an idle fleet").passed is None
