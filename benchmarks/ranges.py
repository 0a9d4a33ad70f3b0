"""``python -m benchmarks.ranges FOLDER…``: one table over several runs, as ranges of their medians.

The rates of a shared machine double and halve from hour to hour. So a figure from one run says little: this shows for
each peer the least and the greatest median, and the place that delayq had in each run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.programs import OWN
from benchmarks.report import Table, markdown_table
from benchmarks.targets import Results
from benchmarks.workloads import WORKLOADS, Workload

STATE = "redis-benchmark, one command at a time: SET"


def tables(runs: Sequence[Results]) -> list[Table]:
    """Return a table of the runs, and one for each workload that any of them has measured."""
    rows = [[each["about"]["at"], *map(str, _settings(each)), *_state(each)] for each in runs]
    about = Table("Runs", ["", "bytes", "append-only file", "SET/s before", "after"], rows)
    return [about, *(_ranges(each, runs) for each in WORKLOADS if any(each.name in run["workloads"] for run in runs))]


def _settings(run: Results) -> tuple[int, str]:
    return run["about"]["size"], run["about"].get("appendfsync") or "off"


def _state(run: Results) -> list[str]:
    found = (run["reference"].get(when, {}).get(STATE) for when in ("before", "after"))
    return ["–" if rate is None else f"{rate:,.0f}" for rate in found]


def _ranges(workload: Workload, runs: Sequence[Results]) -> Table:
    medians: dict[str, list[float]] = {}
    places, names = list[str](), dict[str, str]()
    for run in runs:
        cells: dict[str, Any] = run["workloads"].get(workload.name, {})
        found = {key: each["figures"][workload.main]["median"] for key, each in cells.items() if "figures" in each}
        for key, median in found.items():
            medians.setdefault(key, []).append(median)
            names[key] = run["peers"][key]["peer"]
        if OWN in found:
            order = sorted(found, key=lambda key, found=found: found[key], reverse=workload.higher_is_better)  # type: ignore[misc]
            places.append(f"{order.index(OWN) + 1} of {len(order)}")
    heading, form = workload.columns[workload.main]
    rows = [[names[key], _span(each, form), str(len(each))] for key, each in medians.items()]
    return Table(f"{workload.title} (delayq's places: {', '.join(places)})", ["", heading, "runs"], rows)


def _span(values: Sequence[float], form: str) -> str:
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least}–{most}"


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(folders: tuple[Path, ...]) -> None:
    """Print the ranges of the runs in FOLDERS, which `python -m benchmarks --out FOLDER` has written, as Markdown."""
    runs = [json.loads((folder / "results.json").read_text("utf-8")) for folder in folders]
    for table in tables(runs):
        click.echo(f"### {table.title}\n\n{markdown_table(table)}\n")


if __name__ == "__main__":
    main()
