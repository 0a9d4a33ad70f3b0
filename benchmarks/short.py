"""The short form: checks by the ratios to the bare scripts whether delayq has become slower.

The rates themselves depend on the machine and its other users; a ratio of two consecutive runs hardly does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.own import opened
from benchmarks.paired.rates import Bench
from benchmarks.paired.samples import PairedRates
from benchmarks.server import BenchServer

RECORDED = Path(__file__).with_name("recorded.json")
TOLERANCE = 0.2  # of the recorded ratio: a smaller difference is noise
SIZE = 100  # bytes per payload
AGAIN = 2
PAIRS = 9  # per measure; their median is compared

ON_ONE_CORE = {"send_one"}  # most of its time is switching between the two processes

MEASURES: dict[str, Callable[[Bench], PairedRates]] = {
    "send_one": lambda place: place.send_one(4_000, PAIRS),
    "send_bulk": lambda place: place.send_bulk(40_000, PAIRS),
    "drain": lambda place: place.drain(40_000, PAIRS),
    "pull": lambda place: place.pull(40_000, PAIRS),
}


class Comparison(NamedTuple):
    """A ratio, and its recorded value."""

    name: str
    ratio: float
    recorded: float

    @property
    def least(self) -> float:
        """The minimum."""
        return self.recorded * (1 - TOLERANCE)

    @property
    def fell(self) -> bool:
        """Whether delayq has become slower."""
        return self.ratio < self.least


def measure(
    server: BenchServer, say: Callable[[str, PairedRates], None], names: Iterable[str]
) -> dict[str, PairedRates]:
    """Return the rates of delayq and of the bare scripts.

    Args:
        say: called with a line about each measure.
        names: of the measures.
    """
    found = {}
    with opened(server, SIZE) as place:
        for name in names:
            with server.beside() if name in ON_ONE_CORE else server.apart():
                found[name] = MEASURES[name](place)
            say(name, found[name])
    return found


def hold(measured: Callable[[Iterable[str]], Mapping[str, float]], recorded: Mapping[str, float]) -> list[Comparison]:
    """Compare ratios with the recorded ones; measure one that has fallen again, up to twice.

    A shared machine may be slow for a minute; a real slowdown stays.

    Args:
        measured: measures ratios by name.
    """
    ratios = dict(measured(MEASURES))
    for _ in range(AGAIN):
        fallen = [each.name for each in compare(ratios, recorded) if each.fell]
        if fallen:
            ratios |= measured(fallen)
    return compare(ratios, recorded)


def compare(ratios: Mapping[str, float], recorded: Mapping[str, float]) -> list[Comparison]:
    """Compare ratios with the recorded ones.

    Raises:
        ValueError: the measures differ: a measure must not pass without a comparison.
    """
    if set(ratios) != set(recorded):
        raise ValueError(f"measured {sorted(ratios)}, but recorded {sorted(recorded)}: record the ratios again")
    return [Comparison(name, ratio, recorded[name]) for name, ratio in ratios.items()]


def read_recorded(path: Path) -> dict[str, float]:
    """Return the recorded ratios; raise FileNotFoundError if there are none."""
    recorded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return {str(name): float(ratio) for name, ratio in recorded["ratios"].items()}


def record(ratios: Mapping[str, float], about: Mapping[str, Any], path: Path) -> None:
    """Write the ratios and the machine to the file."""
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    path.write_text(json.dumps({"ratios": rounded, "measured_on": dict(about)}, indent=2) + "\n", "utf-8")
