"""A script in the root of a checkout uses that checkout's delayq, even if another one is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.tree import ROOT

SCRIPT = """
import sys

sys.meta_path = [each for each in sys.meta_path if "editable" not in str(each)]  # as installed from elsewhere
import delayq.cli
from delayq.protocol.script import script

assert script("ack").text
print(delayq.__file__, delayq.cli.__file__)
"""


def test_script_in_a_checkout_finds_its_scripts_and_its_commands():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [Path(each).parent for each in done.stdout.split()] == [ROOT / "delayq", ROOT / "cli"]
