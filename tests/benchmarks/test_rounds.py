"""Peers are measured in turn; one that fails is reported, and the others continue."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.programs import PeerFailed, PeerProgram, Unsupported
from benchmarks.rounds import Rounds, scaled
from benchmarks.tasks import Figures, Task, complete, steady_rate
from benchmarks.workloads import Workload


class NoServer:
    """A stand-in for the server that counts how often it was emptied."""

    def __init__(self) -> None:
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1


def peer(key: str) -> PeerProgram:
    return PeerProgram(key, [], {"peer": key.upper()})


def run(figures: dict[str, Any], runs: int = 2, **options: Any) -> tuple[dict[str, Any], list[str], NoServer]:
    """Run a workload in which each peer's runs return its figures or raise them; return the results and the order."""
    order: list[str] = []

    def each(task: Task) -> Figures:
        order.append(f"{task.peer.key}:{task.messages}")
        figure = figures[task.peer.key]
        if isinstance(figure, Exception):
            raise figure
        return {"rate": figure}

    workload = Workload("name", "Title", {"rate": ("", "")}, each, **{"messages": 10, "most": 3000} | options)
    server: Any = NoServer()
    cells = Rounds(workload, server, 100, lambda _: None, seconds=2).run([peer(key) for key in figures], runs)
    return cells, order, server


def test_rounds_interleave_the_peers_after_a_warm_up_that_sets_the_number_of_messages():
    cells, order, server = run({"a": 1000, "b": 200})
    assert order == ["a:10", "b:10", "a:2000", "b:400", "a:2000", "b:400"]
    assert cells["a"]["messages"] == 2000
    assert cells["b"]["figures"]["rate"]["samples"] == [200, 200]
    assert server.flushed == len(order)


def test_workload_of_a_fixed_number_is_not_scaled():
    _, order, _ = run({"a": 1000}, most=0)
    assert order == ["a:10", "a:10"]


def test_long_workload_has_fewer_rounds():
    _, order, _ = run({"a": 1000}, runs=5, rounds=1)
    assert order == ["a:10", "a:2000"]


@pytest.mark.parametrize("error", [PeerFailed("it died"), ValueError("2 of 3 came"), OSError("gone")], ids=repr)
def test_failing_peer_is_reported_and_the_others_continue(error: Exception):
    cells, order, _ = run({"a": error, "b": 200})
    assert cells["a"] == {"failed": f"{type(error).__name__}: {error}"}
    assert cells["b"]["messages"] == 400
    assert order.count("a:10") == 1


def test_peer_without_support_has_not_failed():
    cells, _, _ = run({"a": Unsupported("none")})
    assert cells["a"] == {"unsupported": "none"}


@pytest.mark.parametrize(
    ("rate", "messages"), [(1, 200), (333, 1000), (5_432, 20_000), (1e9, 300_000), (float("inf"), 300_000)]
)
def test_number_of_messages_is_round_and_within_bounds(rate: float, messages: int):
    assert scaled(rate, 5, 300_000) == messages


def test_rate_of_a_drain_leaves_out_the_first_tenth():
    assert steady_rate({"messages": 1000, "first": 0, "warm": 10.0, "last": 19.0}) == 100


def test_lost_messages_make_a_run_void():
    with pytest.raises(ValueError, match="9 of 10 messages arrived"):
        complete({"messages": 9}, 10)
