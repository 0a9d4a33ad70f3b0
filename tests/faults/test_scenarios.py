"""Every scenario whose short form takes seconds: order, counts and states.

Time limits are checked only by `make chaos`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.chaos.runner import LONG_ALONE, NAMES, play

SHORT = [name for name in NAMES if name not in LONG_ALONE]
# For `make test`: consumers of schedules are killed, the server is killed, and the doctor repairs damaged data.
SOME_KINDS = {"cron", "kill_server", "wounds"}


@pytest.mark.by_lot(3)
@pytest.mark.parametrize(
    "name", [name if name in SOME_KINDS else pytest.param(name, marks=pytest.mark.full) for name in SHORT]
)
def test_scenario_passes(name: str, tmp_path: Path) -> None:
    verdict, _ = play(name, seed=1, size="short", folder=tmp_path)
    assert verdict.is_valid


def test_each_of_them_has_a_scenario() -> None:
    assert set(SHORT) >= SOME_KINDS
