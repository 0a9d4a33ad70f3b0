"""A lake, and a clock that decides when messages are kept in it and when they are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.lake.lakes import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"
