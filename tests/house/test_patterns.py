"""Patterns mean the same on every Python that delayq runs on."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A possessive group or an atomic one. Before Python 3.11.5, both may fail to match where they should.
GROUPS = re.compile(r"\)(?:[*+?]|\{[0-9,]*\})\+(?!\+)(?=\S)|\(\?>")


def test_no_pattern_has_a_group_that_older_pythons_match_wrongly() -> None:
    files = [path for folder in ("delayq", "cli") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    assert [str(path) for path in files if GROUPS.search(path.read_text(encoding="utf-8"))] == []
    for pattern in (r"(?:a|b)*+c", r"(a)++", r"(a)?+b", r"(?:ab){2,}+c", r"(?>a|b)"):
        assert GROUPS.search(f'"{pattern}"')
    for pattern in (r"a*+", r"[ab]++", r"(a)*", r"(a)+b"):
        assert not GROUPS.search(f'"{pattern}"')
