"""The short form of every scenario that has one of seconds: order, counts and states.

Bounds on time are those of `make chaos`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.chaos.runner import LONG_ALONE, NAMES, play


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG_ALONE])
def test_scenario_holds(name: str, tmp_path: Path) -> None:
    verdict, _ = play(name, seed=1, size="short", folder=tmp_path)
    assert verdict.is_valid
