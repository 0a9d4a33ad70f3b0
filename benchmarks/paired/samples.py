"""Samples of a figure and their statistics: pure arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

NOISY = 0.15  # between runs of the bare scripts: a ratio may be wrong by this much


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that `share` (0 to 1) of them do not exceed.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values: nothing was measured")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True)
class PairedRates:
    """Rates of delayq and of the bare scripts, measured in turn: bare, delayq, bare, …, delayq, bare.

    Attributes:
        own: messages per second, one sample per run.
        bare: the same, with one sample more.
    """

    own: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of delayq's rates."""
        return statistics.median(self.own)

    @property
    def ratios(self) -> list[float]:
        """Each sample of delayq divided by the mean of its neighbours: a slower machine slows both."""
        between = zip(self.own, self.bare, self.bare[1:], strict=False)
        return [2 * own / (before + after) for own, before, after in between]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def unrest(self) -> float:
        """The median relative difference between neighbouring samples of the bare scripts."""
        return statistics.median(
            abs(before - after) / max(before, after) for before, after in zip(self.bare, self.bare[1:], strict=False)
        )

    def as_record(self) -> dict[str, Any]:
        """Return the figures for printing as JSON."""
        return {
            "per_second": summary(self.own),
            "bare_per_second": summary(self.bare),
            "ratio": self.ratio,
            "ratios": self.ratios,
            "unrest": self.unrest,
        }


def alternate(own: Callable[[], float], bare: Callable[[], float], runs: int) -> PairedRates:
    """Measure both in turn, in `runs` pairs, and the bare scripts once more; both functions return rates."""
    paired = PairedRates()
    paired.bare.append(bare())
    for _ in range(runs):
        paired.own.append(own())
        paired.bare.append(bare())
    return paired


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Return the median, minimum and maximum of the samples, and all of them."""
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "samples": list(samples),
    }
