"""What a program notices that calls a command."""

from __future__ import annotations

import sys

from tests.cli.conftest import Run

CALLS = """
import contextlib, gc, sys
from delayq.cli import main

def hidden(*words):
    before = gc.get_freeze_count()
    with contextlib.suppress(SystemExit):
        main(*words)
    return gc.get_freeze_count() > before

sys.argv = ["delayq", "--version"]
print(hidden(["--version"]), hidden())
"""


def test_only_a_command_with_its_own_process_hides_its_imports_from_the_garbage_collector(delayq: Run):
    done = delayq("-c", CALLS, program=[sys.executable])
    assert done.stdout.splitlines()[-1] == "False True", done.stderr
