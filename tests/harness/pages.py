"""The pages of the docs, split into what a reader would run and would see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.harness.tree import ROOT

GUIDES = ROOT / "docs" / "from"  # for people who come from elsewhere
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])

_FENCED = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (?P<command>.*(?:\n> .*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_FILE = re.compile(r"# (?P<name>\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """The text between two fences.

    Attributes:
        language: the word after the first fence.
        line: the line of the page where it starts.
    """

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file name of a Python block, from its first line."""
        match = _FILE.match(self.text)
        return match["name"] if match else None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console block, each with its output."""
        return [(match["command"].replace("\n> ", "\n"), match["output"]) for match in _COMMAND.finditer(self.text)]


@cache
def blocks(page: Path) -> list[Block]:
    """Return the blocks between fences, in the order of the page."""
    text = page.read_text()
    return [
        Block(match["language"], match["text"], text.count("\n", 0, match.start()) + 1)
        for match in _FENCED.finditer(text)
    ]


def name(page: Path) -> str:
    """Return a page's path as readers know it."""
    return str(page.relative_to(ROOT))


_MOMENT = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?"
_DURATION = r"\b\d[\d,]*(?:\.\d+)?(?:ms|[smhdw])\b"
_VARIABLE = (  # what differs from run to run, and its replacement
    (_MOMENT, "MOMENT"),
    (rf"{_DURATION}(?: {_DURATION})?", "DURATION"),
    (r"\b[0-9A-Za-z]{14}\b", "ID"),
    (r"(?<=(?:elayq|is-py|Redis|alkey) )\d+(?:\.\d+)+", "VERSION"),
    (r"\b(consumer|pid|path)=\S+", r"\1=…"),
    (r"[ \t]+", " "),
)


def without_variables(output: str) -> list[str]:
    """Return the lines of a command's output, with times, durations, random ids and column widths made equal.

    Lines of the log come last, because the order of the two streams is not fixed. The log line that says which store
    was opened is left out, because every command starts with it.
    """
    for pattern, shown in _VARIABLE:
        output = re.sub(pattern, shown, output)
    lines = [line.strip() for line in output.splitlines() if "embedded store opened" not in line]
    return sorted(lines, key=lambda line: line.startswith("MOMENT ["))
