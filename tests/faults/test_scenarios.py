"""The short form of every scenario: order, counts and states; bounds on time are those of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.runner import NAMES, play


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
def test_scenario_holds(name: str, tmp_path: Path) -> None:
    verdict, _ = play(name, seed=1, size="short", folder=tmp_path)
    assert verdict.is_valid
