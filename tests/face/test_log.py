"""Lines of the log, as people read them: what a user has chosen is one value, whatever it looks like."""

from __future__ import annotations

import subprocess
import sys

import pytest

WAYS = {
    "unconfigured": "from delayq.log import log",
    "command": "from delayq.cli.logging import configure; configure(); from delayq.log import log",
}


@pytest.mark.parametrize("way", WAYS)
def test_value_in_which_another_field_or_line_seems_to_begin_is_quoted(way: str):
    names = ["ann", "a b", "ann who=eve", "ann\nwho=eve", "'", '"', "", "a=b", "\u2028", "\x1b[2J", "ä", "order-42"]
    program = f"{WAYS[way]}\nfor name in {names!r}: log.info('audit', who=name, yes='no')"
    told = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True).stderr
    lines = [line.partition("who=")[2] for line in told.split("\n")[:-1]]
    assert lines == [f"{name if name in {'ann', 'ä', 'order-42'} else repr(name)} yes=no" for name in names]
