"""The code that runs is in the same folder as these tests.

`tests/harness/mutation.py` runs this file in each copy. Its name hides it from a plain pytest run, which has no copy.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2]
MODULES = ("delayq", "delayq.cli", "delayq.lua", "delayq.operations.send", "tests.harness.servers")


def test_everything_is_imported_from_the_copy():
    files = [Path(str(import_module(name).__file__)).resolve() for name in MODULES]
    assert [file for file in files if not file.is_relative_to(FOLDER)] == []
