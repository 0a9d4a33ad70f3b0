"""Files and programs are read as UTF-8, whatever the locale says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("_delayq_pytest.py", "benchmarks", "cli", "delayq", "docs/conf.py", "examples", "lua", "setup.py", "tools")
BEFORE_ENCODING = {"read_text": 0, "write_text": 1}  # positional arguments
MODE = {"open": 0, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0, "SpooledTemporaryFile": 1}
NOT_TEXT = {"os", "stat", "webbrowser", "fsspec", "urllib", "http"}  # modules whose `open` opens no text


def calls_without_encoding(tree: ast.AST) -> Iterator[ast.Call]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _decodes(call) and not any(each.arg == "encoding" for each in call.keywords):
            yield call


def _decodes(call: ast.Call) -> bool:
    """Whether a call reads or writes text, without an encoding among its positional arguments."""
    if any(each.arg in ("text", "universal_newlines") and ast.unparse(each.value) == "True" for each in call.keywords):
        return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).endswith("subprocess")
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if name in BEFORE_ENCODING:
        return len(call.args) <= BEFORE_ENCODING[name]
    if name not in MODE or (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in NOT_TEXT - {"os"}):
        return False
    if ast.unparse(call.func) == "os.open":
        return False
    place = MODE[name] + isinstance(call.func, ast.Name) * (name == "open")
    default = "w+b" if name.endswith("TemporaryFile") else "r"
    modes = [each.value for each in call.keywords if each.arg == "mode"] or call.args[place : place + 1]
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "" if modes else default
    return "b" not in str(mode)


@pytest.mark.parametrize("source", SOURCES)
def test_text_is_read_and_written_with_an_encoding(source: str):
    path = ROOT / source
    wrong = [
        f"{each.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)[:80]}"
        for each in ([path] if path.is_file() else sorted(path.rglob("*.py")))
        for call in calls_without_encoding(ast.parse(each.read_bytes()))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("p.read_text()", 1),
        ("p.read_text('utf-8')", 0),
        ("p.read_text(errors='replace')", 1),
        ("p.write_text(x)", 1),
        ("p.write_text(x, 'utf-8')", 0),
        ("open(p)", 1),
        ("open(p, 'rb')", 0),
        ("open(p, encoding='utf-8')", 0),
        ("p.open('w')", 1),
        ("p.open('wb')", 0),
        ("os.open(p, os.O_RDONLY)", 0),
        ("os.fdopen(3, 'w')", 1),
        ("subprocess.run(a, text=True)", 1),
        ("subprocess.Popen(a, text=True, encoding='utf-8')", 0),
        ("tempfile.NamedTemporaryFile('w')", 1),
        ("tempfile.NamedTemporaryFile()", 0),
    ],
)
def test_calls_without_an_encoding_are_found(code: str, count: int):
    assert len(list(calls_without_encoding(ast.parse(code)))) == count
