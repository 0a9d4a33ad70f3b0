"""The short form: whether delayq has become slower, told by its ratios to the bare scripts.

The rates themselves depend on the machine and on who else uses it; a ratio of neighbours in time hardly does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from delayq.cli.bench.rates import Bench
from delayq.cli.bench.samples import PairedRates

from benchmarks.own import opened
from benchmarks.server import BenchServer

RECORDED = Path(__file__).with_name("recorded.json")
TOLERANCE = 0.2  # of the recorded ratio: less is noise
SIZE = 100  # bytes of a payload
AGAIN = 2
PAIRS = 9  # of each measure; their median is compared

ON_ONE_CORE = {"send_one"}  # of these, most of the time is the way from one process to the other and back

MEASURES: dict[str, Callable[[Bench], PairedRates]] = {
    "send_one": lambda place: place.send_one(4_000, PAIRS),
    "send_bulk": lambda place: place.send_bulk(40_000, PAIRS),
    "drain": lambda place: place.drain(40_000, PAIRS),
    "pull": lambda place: place.pull(40_000, PAIRS),
}


class Comparison(NamedTuple):
    """A ratio, and what it was when it was recorded."""

    name: str
    ratio: float
    recorded: float

    @property
    def least(self) -> float:
        """What it must reach."""
        return self.recorded * (1 - TOLERANCE)

    @property
    def fell(self) -> bool:
        """Whether delayq has become slower."""
        return self.ratio < self.least


def measure(
    server: BenchServer, say: Callable[[str, PairedRates], None], names: Iterable[str]
) -> dict[str, PairedRates]:
    """Return what delayq and the bare scripts make of measures.

    Args:
        say: is told of each.
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
    """Hold ratios against those that were recorded; one that fell is measured again, up to twice.

    A machine that others use slows delayq down for a minute; what has become slower itself stays so.

    Args:
        measured: measures ratios by their names.
    """
    ratios = dict(measured(MEASURES))
    for _ in range(AGAIN):
        fallen = [each.name for each in compare(ratios, recorded) if each.fell]
        if fallen:
            ratios |= measured(fallen)
    return compare(ratios, recorded)


def compare(ratios: Mapping[str, float], recorded: Mapping[str, float]) -> list[Comparison]:
    """Hold ratios against those that were recorded.

    Raises:
        ValueError: they are not the same measures: what is not compared must not pass.
    """
    if set(ratios) != set(recorded):
        raise ValueError(f"measured were {sorted(ratios)}, recorded are {sorted(recorded)}: record them anew")
    return [Comparison(name, ratio, recorded[name]) for name, ratio in ratios.items()]


def read_recorded(path: Path) -> dict[str, float]:
    """Return the ratios that were recorded; raises FileNotFoundError when none were."""
    told: dict[str, Any] = json.loads(path.read_text())
    return {str(name): float(ratio) for name, ratio in told["ratios"].items()}


def record(ratios: Mapping[str, float], about: Mapping[str, Any], path: Path) -> None:
    """Write ratios down, and on what they were measured."""
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    path.write_text(json.dumps({"ratios": rounded, "measured_on": dict(about)}, indent=2) + "\n")
