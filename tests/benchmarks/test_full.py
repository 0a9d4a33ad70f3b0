"""The whole comparison: finished sections are kept, and a failing section does not end it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import full, machine
from benchmarks.__main__ import main
from benchmarks.full import Full, RunScale

SCALE = RunScale(runs=1, size=100, seconds=1, growth=1, backlog=1)
USED = {"commands_per_second": 20.0, "within_scripts_per_second": 60.0, "cpu_percent": 0.1}
IDLE = {"one": USED, "fleet": USED}


def fails(*_: Any) -> dict[str, Any]:
    raise click.ClickException("600 messages were expected, and 599 counted")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results, with sections that cost nothing."""
    sections = {"cost": fails, "idle_own": lambda *_: IDLE}
    monkeypatch.setattr(full, "OWN_SECTIONS", sections)
    monkeypatch.setattr(full, "REFERENCE", {})
    monkeypatch.setattr(full, "RATE_MESSAGES", 1000)
    monkeypatch.setattr(machine, "LOOK_SECONDS", 0.01)
    return tmp_path / "results"


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def test_failing_section_is_reported_and_the_next_one_runs(out: Path, capsys: pytest.CaptureFixture[str]):
    said: list[str] = []
    Full(out, SCALE, [], said.append).run(["cost", "idle_own"], merge=False)
    found = results(out)
    assert found["failed"] == {"cost": "ClickException: 600 messages were expected, and 599 counted"}
    assert found["own"] == {"idle_own": IDLE}
    assert set(found["measured"]) == {"cost", "idle_own"}
    assert said == ["── cost", "cost failed: 600 messages were expected, and 599 counted", "── idle_own"]
    assert "commands sent" in capsys.readouterr().out
    assert "| cost | ClickException: 600 messages" in (out / "results.md").read_text()
    assert (out / "results.svg").read_text().startswith("<svg ")


@pytest.mark.full
def test_results_of_other_sections_are_kept(out: Path, monkeypatch: pytest.MonkeyPatch):
    Full(out, SCALE, [], lambda _: None).run(["idle_own", "cost"], merge=False)
    cost = {"redis_cpu_us": 10.0, "commands": 0.1, "trips": 0.01, "lone_trips": 5}
    monkeypatch.setattr(full, "OWN_SECTIONS", {"cost": lambda *_: cost})
    Full(out, SCALE, [], lambda _: None).run(["cost"], merge=True)
    assert results(out)["own"] == {"idle_own": IDLE, "cost": cost}
    assert results(out)["failed"] == {}
    Full(out, SCALE, [], lambda _: None).run(["cost"], merge=False)
    assert results(out)["own"] == {"cost": cost}


@pytest.mark.full
def test_reference_is_measured_before_and_after(out: Path):
    Full(out, SCALE, [], lambda _: None).run(["idle_own"], merge=False)
    reference = results(out)["reference"]
    assert set(reference["before"]) == set(reference["after"])
    assert all(rate > 0 for each in reference.values() for rate in each.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "drain,nonsense"], "unknown: nonsense; expected some of send_one, "),
        (["--peers", "rabbitmq"], "unknown: rabbitmq; expected some of delayq, "),
        (["--record"], "--record needs --short"),
    ],
    ids=["section", "peer", "record"],
)
def test_unknown_word_is_refused(words: list[str], said: str):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert said in result.stderr
