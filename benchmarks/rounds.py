"""Runs the peers in turn, round after round, so that a slow minute of the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.paired.samples import summary
from benchmarks.programs import PeerFailed, PeerProgram, Unsupported
from benchmarks.server import BenchServer
from benchmarks.tasks import Figures, Task
from benchmarks.workloads import Workload

SECONDS = 5.0  # target duration of a run
FEWEST = 200  # messages per run

Cell = dict[str, Any]
"""The result of a peer's runs: `messages` and `figures`, or a reason in `failed` or `unsupported`."""


class Rounds:
    """One workload, with all peers.

    Args:
        runs: number of rounds.
        say: called with a line about each run.
        seconds: target duration of a run.
    """

    def __init__(
        self,
        workload: Workload,
        server: BenchServer,
        size: int,
        say: Callable[[str], None],
        seconds: float = SECONDS,
    ) -> None:
        self._workload = workload
        self._server = server
        self._size = size
        self._say = say
        self._seconds = seconds
        self._samples: dict[str, list[Figures]] = {}
        self._counts: dict[str, int] = {}
        self._excuses: dict[str, Cell] = {}

    def run(self, peers: Sequence[PeerProgram], runs: int) -> dict[str, Cell]:
        """Warm up and run all rounds; return one result per peer."""
        for peer in peers:
            self._warm_up(peer)
        for number in range(min(runs, self._workload.rounds)):
            for peer in peers:
                figures = self._try(peer, self._counts.get(peer.key, 0), f"run {number + 1}")
                if figures is not None:
                    self._samples.setdefault(peer.key, []).append(figures)
        return {peer.key: self._cell(peer.key) for peer in peers}

    def _warm_up(self, peer: PeerProgram) -> None:
        count = self._workload.messages
        if not self._workload.most:
            self._counts[peer.key] = count
            return
        figures = self._try(peer, count, "warm-up")
        if figures is not None:
            self._counts[peer.key] = scaled(figures[self._workload.main], self._seconds, self._workload.most)

    def _try(self, peer: PeerProgram, count: int, what: str) -> Figures | None:
        if peer.key in self._excuses:
            return None
        self._server.flush()
        try:
            figures = self._workload.run(Task(peer, self._server, count, self._size))
        except Unsupported as error:
            self._excuses[peer.key] = {"unsupported": str(error)}
            self._say(f"{self._workload.name}  {peer.name}: {error}")
            return None
        except (PeerFailed, OSError, ValueError, KeyError) as error:
            self._excuses[peer.key] = {"failed": f"{type(error).__name__}: {error}"}
            self._say(f"{self._workload.name}  {peer.name}  {what} failed: {error}")
            return None
        text = ", ".join(f"{name} {value:,.5g}" for name, value in figures.items())
        self._say(f"{self._workload.name}  {peer.name}  {what} of {count:,}: {text}")
        return figures

    def _cell(self, key: str) -> Cell:
        if key in self._excuses:
            return self._excuses[key]
        samples = self._samples[key]
        figures = {name: summary([each[name] for each in samples]) for name in self._workload.columns}
        return {"messages": self._counts[key], "figures": figures}


def scaled(rate: float, seconds: float, most: int) -> int:
    """Return how many messages take about `seconds` at a rate: a round number from FEWEST to `most`."""
    wanted = min(max(rate * seconds, FEWEST), most)
    step = 10 ** (len(str(int(wanted))) - 1)
    return max(FEWEST, int(wanted // step * step))
