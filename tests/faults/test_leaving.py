"""A program ends on a signal at any point of its start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.tree import ROOT

PLACES = {
    "anywhere": "signal.raise_signal(signal.SIGTERM)",
    "in a destructor": "del thing",
    "where a module's lock is let go": "kept = weakref.ref(thing, at_end); del thing",
}

PROGRAM = """
import signal, weakref
from tests.harness.chaos.leaving import leave_at_sigterm

at_end = lambda *_: signal.raise_signal(signal.SIGTERM)

class Thing:
    {method}

thing = Thing()
leave_at_sigterm()
{end}
print("still here")
"""


@pytest.mark.parametrize("place", PLACES)
def test_program_ends_on_sigterm_while_it_starts(place: str):
    method = "__del__ = at_end" if place == "in a destructor" else "pass"
    words = [sys.executable, "-c", PROGRAM.format(method=method, end=PLACES[place])]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
