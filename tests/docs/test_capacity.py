"""The figures of docs/capacity.md are what delayq computes, and its rates are those that delayq computes with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from click.testing import CliRunner
from delayq.cli import main

from delayq.model import capacity
from delayq.model.footprint import LAYOUTS, Shape, in_lake, reserved, waiting
from delayq.model.show import show_duration, show_size
from tests.harness.tree import ROOT

PAGE = ROOT / "docs" / "capacity.md"
MILLION = 10**6


def table(heading: str) -> str:
    """The first table below a heading, without its header row."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:])


def line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def test_table_of_loads_is_what_the_command_prints():
    rows = []
    for power in range(6, 11):
        words = [
            "plan",
            "--messages",
            f"1e{power}",
            "--payload",
            "300",
            "--spread",
            "365d",
            "--horizon",
            "2h",
            "--json",
        ]
        document = json.loads(CliRunner().invoke(main, words).stdout)
        whole, lake = document["all_in_redis"], document["lake"]
        rows.append(
            [
                f"{10**power:,}",
                show_size(whole["redis_bytes"]),
                f"{whole['servers']:,}",
                show_size(lake["in_redis"]["redis_bytes"]),
                f"{lake['in_redis']['servers']:,}",
                f"{show_size(lake['text_bytes'])} to {show_size(lake['random_bytes'])}",
                show_duration(document["send_seconds"]),
                show_duration(lake["defer_seconds"]),
                show_duration(lake["hydrate_seconds"]),
            ]
        )
    assert table("Sizes by number of messages") == "\n".join(map(line, rows))


def test_table_of_bytes_has_the_computed_figures():
    rows: list[Sequence[object]] = []
    for payload in (20, 100, 300, 1000, 5000):
        shape = Shape(payload)
        waits = [round(waiting(MILLION, shape, layout) / MILLION) for layout in LAYOUTS.values()]
        rests = [round(in_lake(MILLION, shape, is_text) / MILLION) for is_text in (True, False)]
        rows.append([f"{each:,}" for each in (payload, *waits, *rests)])
    ids = [f"{reserved(MILLION, Shape(0), layout) / MILLION:,.0f}" for layout in LAYOUTS.values()]
    assert table("What a message takes") == "\n".join([*map(line, rows), line(["a reserved id", *ids, "–", "–"])])


@pytest.mark.parametrize(
    ("constant", "page", "row"),
    [
        ("SENT", "benchmarks.md", r"^\| send in bulk \| ([\d,]+) /s"),
        ("CONSUMED", "benchmarks.md", r"^\| drain \| ([\d,]+) /s"),
        ("SERVER_SECONDS", "benchmarks.md", r"^\| Redis CPU time per message \| ([\d.]+) µs"),
        ("DEFERRED", "capacity.md", r"^\| messages deferred.* \| ([\d,]+) /s"),
        ("HYDRATED", "capacity.md", r"^\| messages hydrated.* \| ([\d,]+) /s"),
    ],
)
def test_rates_are_near_those_on_the_pages(constant: str, page: str, row: str):
    found = re.search(row, (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert found
    value = float(found[1].replace(",", ""))
    assert getattr(capacity, constant) == pytest.approx(value * 1e-6 if "µs" in found[0] else value, rel=0.25)
