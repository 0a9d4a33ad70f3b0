"""The code that runs is that of the folder in which these tests stand.

Run by `tests/harness/mutation.py` in each copy: the name hides this file from a plain pytest, which has no copy.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2]
MODULES = ("delayq", "delayq.cli", "delayq.lua", "delayq.operations.send", "tests.harness.servers")


def test_everything_is_imported_from_the_copy():
    files = [Path(str(import_module(name).__file__)).resolve() for name in MODULES]
    assert [file for file in files if not file.is_relative_to(FOLDER)] == []
