"""The files, functions and rooms on the architecture page exist."""

from __future__ import annotations

import re

import pytest

from tests.harness.tree import ROOT
from tests.house.test_imports import ROOMS

PAGE = (ROOT / "docs" / "architecture.md").read_text() if (ROOT / "docs").is_dir() else ""
TOP = ("delayq/", "cli/", "lua/", "tests/", "tools/", "docs/")

pytestmark = pytest.mark.skipif(not PAGE, reason="the wheel has no documentation")


def named() -> set[str]:
    """The paths between backticks; NAME matches anything."""
    words = set(re.findall(r"`([\w./-]+)`", PAGE))
    return {word for word in words if word.startswith(TOP) and "NAME" not in word}


def test_every_path_on_the_page_exists():
    assert len(named()) > 50
    assert sorted(path for path in named() if not (ROOT / path).exists()) == []


def test_every_function_named_after_its_file_is_in_it():
    pairs = re.findall(r"`([\w./]+\.(?:py|lua))`,\s+`(?:\w+\.)?(\w+)`", PAGE)
    assert len(pairs) > 10
    missing = [(path, name) for path, name in pairs if not re.search(rf"\b{name}\b", (ROOT / path).read_text())]
    assert missing == []


def test_every_room_is_on_the_page():
    assert {room for room in ROOMS if not re.search(rf"\b{room}\b", PAGE)} == set()
