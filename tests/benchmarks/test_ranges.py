"""Ranges over several runs show the least and the greatest median, and delayq's place in each run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from benchmarks.ranges import STATE, main


def run(folder: Path, state: float, **medians: float) -> str:
    cells = {key: {"figures": {"per_second": {"median": each}}} for key, each in medians.items()}
    results: dict[str, Any] = {
        "about": {"at": "2026-11-28", "size": 1024, "appendfsync": "everysec"},
        "peers": {key: {"peer": key.upper()} for key in medians},
        "workloads": {"send_one": cells | {"arq": {"failed": "no"}}},
        "reference": {"before": {STATE: state}},
    }
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    return str(folder)


def test_ranges_of_two_runs(tmp_path: Path):
    folders = [
        run(tmp_path / "a", 50_000, delayq=16_090, huey=9_859),
        run(tmp_path / "b", 19_000, delayq=5_778, huey=6_537),
    ]
    done = CliRunner().invoke(main, folders, catch_exceptions=False)
    assert "| 2026-11-28 | 1024 | everysec | 19,000 | – |" in done.output
    assert "### Send one by one (delayq's places: 1 of 2, 2 of 2)" in done.output
    assert "| DELAYQ | 5,778–16,090 | 2 |" in done.output
    assert "| HUEY | 6,537–9,859 | 2 |" in done.output
