"""Pages, docstrings, messages and scripts use the words of the field. `WORDS` is the one list of those they avoid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.harness.pages import PAGES, name
from tests.harness.tree import LUA, ROOT, modules, syntax

WORDS = {  # what readers should not find: what to write instead
    r"\bhand-?outs?\b": "delivery",
    r"\bsecond deliver(?:y|ies)\b": "duplicate",
    r"\bfor good\b": "permanently, or indefinitely",
    r"\bnext hours\b": "messages due in the next few hours",
    r"\b(?:whoever|anew|likewise|thus|at the most)\b": "a plainer word",
    r"\b(?:at most|more than|up to|\d to) (?!65535)[1-9]\d{3,}\b": "1,000",
    r"(?<![\w,.=:#-])[1-9]\d{3,} (?:bytes|characters|fields|letters|members|messages|queues|records)\b": "1,000",
}
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[str, str]]:
    """Yield what people read, without code, and where it is."""
    for page in PAGES:
        yield name(page), CODE.sub("", page.read_text())
    for module, path in modules().items():
        for node in ast.walk(syntax(module)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
    for script in LUA.rglob("*.lua"):  # their headers are also read by programs: without commas
        yield f"lua/{script.name}", re.sub(r"\d", "", "\n".join(re.findall(r"-- (.*)", script.read_text())))
    for page in (ROOT / "delayq" / "web" / "templates").glob("*.html"):
        yield f"templates/{page.name}", page.read_text()


@pytest.fixture(scope="module")
def written() -> list[tuple[str, str]]:
    return [(place, " ".join(text.split())) for place, text in texts()]


@pytest.mark.parametrize("word", WORDS)
def test_word_is_avoided(word: str, written: list[tuple[str, str]]):
    found = {place: match[0] for place, text in written if (match := re.search(word, text, re.IGNORECASE))}
    assert found == {}, f"write instead: {WORDS[word]}"
