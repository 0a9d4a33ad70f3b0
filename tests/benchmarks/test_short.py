"""The short form fails if delayq has become slower, and only then."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from benchmarks import machine, short
from benchmarks.__main__ import run_short

TINY = {"send_bulk": lambda place: place.send_bulk(1000, 2), "pull": lambda place: place.pull(1000, 2)}


@pytest.mark.parametrize(("ratio", "fell"), [(1.0, False), (0.41, False), (0.4, False), (0.39, True)])
def test_ratio_may_fall_by_a_fifth(ratio: float, fell: bool):
    (comparison,) = short.compare({"drain": ratio}, {"drain": 0.5})
    assert comparison.fell is fell


@pytest.mark.parametrize("recorded", [{}, {"drain": 0.5, "pull": 0.5}, {"pull": 0.5}], ids=str)
def test_measures_that_differ_from_the_recorded_ones_are_an_error(recorded: dict[str, float]):
    with pytest.raises(ValueError, match="record the ratios again"):
        short.compare({"drain": 0.5}, recorded)


@pytest.mark.parametrize(("later", "asked", "fell"), [([0.5], 2, False), ([0.3, 0.41], 3, False), ([0.3] * 2, 3, True)])
def test_fallen_ratio_is_measured_again(later: list[float], asked: int, fell: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(short, "MEASURES", {"drain": None, "pull": None})
    answers = iter([{"drain": 0.3, "pull": 0.5}, *({"drain": ratio} for ratio in later)])
    names: list[list[str]] = []

    def measured(wanted: Iterable[str]) -> Mapping[str, float]:
        names.append(list(wanted))
        return next(answers)

    drain, pull = short.hold(measured, {"drain": 0.5, "pull": 0.5})
    assert (drain.fell, pull.fell) == (fell, False)
    assert names == [["drain", "pull"], *[["drain"]] * (asked - 1)]


def test_recorded_ratios_are_those_of_the_current_measures():
    assert set(short.read_recorded(short.RECORDED)) == set(short.MEASURES)


@pytest.mark.parametrize(("planted", "code"), [(1000.0, 1), pytest.param(0.001, 0, marks=pytest.mark.full)])
def test_exit_code_is_1_when_a_recorded_ratio_was_much_higher(
    planted: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(short, "MEASURES", TINY)
    monkeypatch.setattr(machine, "LOOK_SECONDS", 0.01)
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps({"ratios": {"send_bulk": planted, "pull": 0.001}}))
    assert run_short(record=False, recorded=path) == code
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["send_bulk", "pull"]
    assert [line.endswith(": slower than before") for line in printed] == [bool(code), False]


@pytest.mark.full
def test_recorded_ratios_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(short, "MEASURES", TINY)
    monkeypatch.setattr(machine, "LOOK_SECONDS", 0.01)
    path = tmp_path / "recorded.json"
    assert run_short(record=True, recorded=path) == 0
    assert set(short.read_recorded(path)) == set(TINY)
    assert all(ratio > 0 for ratio in short.read_recorded(path).values())
    assert json.loads(path.read_text())["measured_on"]["cores"] >= 1
