"""What the sync and async APIs have in common is written once; `x.py` and `x_async.py` hold what differs."""

from __future__ import annotations

import ast
import re
import sys
from difflib import SequenceMatcher
from pathlib import Path

from tools import faces

MOST = 300
"""Lines that hand-written twins may have in common, over all twins; there were 624."""

SAME = (
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\b__a(?=(?:enter|exit|iter|next)__)", "__"),
    (r"\bAsync(?=\w)", ""),
    (r"_async\b", ""),
    (r"\basyncio\b", "threading"),
    (r"\bdelayq\.(testing\.)?aio\b", r"delayq.\1"),
)
"""Words of the async API, and those that a sync twin has in their place."""


def twins() -> list[tuple[Path, Path]]:
    """The hand-written files of the async API that have a sync one."""
    pairs = [(path, path.with_name(path.name.replace("_async", ""))) for path in faces.PACKAGE.rglob("*_async.py")]
    pairs += [(path, path.parents[1] / path.name) for path in faces.PACKAGE.rglob("aio/*.py") if path.stem[0] != "_"]
    made = {faces.PACKAGE / f"{name}.py" for name in faces.MADE}
    return sorted((path, other) for path, other in pairs if path not in made and other.exists())


def code(path: Path) -> list[str]:
    """The lines of a file without imports, docstrings, comments and words of one API."""
    text = path.read_text("utf-8")
    left_out = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for pattern, replacement in [(r"(^|[ \t])#.*$", ""), *SAME]:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line.strip() for number, line in enumerate(text.split("\n"), 1) if number not in left_out]
    return list(filter(None, lines))


def in_common(one: Path, other: Path) -> int:
    """How many lines of two files are equal, in blocks of two or more."""
    blocks = SequenceMatcher(None, code(one), code(other), autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks if block.size > 1)


def test_hand_written_twins_have_little_in_common() -> None:
    found = {path: in_common(path, other) for path, other in twins()}
    for path, lines in sorted(found.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{lines:4} of {len(code(path)):3} lines: {path.relative_to(faces.ROOT)}\n")
    assert sum(found.values()) <= MOST, "move it into a module that both use, or generate one: see tools/faces.py"


def test_no_twin_is_more_than_half_equal() -> None:
    """Then the sync file should be generated from the async one."""
    found = {path.name: in_common(path, other) / min(len(code(path)), len(code(other))) for path, other in twins()}
    assert {name: share for name, share in found.items() if share > 0.5} == {}
