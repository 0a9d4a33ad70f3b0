"""Hostile input, and what it must not do: raise an unnamed error, take forever, or leak memory.

The suite draws the same examples each time. `DELAYQ_FUZZ_EXAMPLES=100000` draws that many new ones per property.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import tracemalloc
import unicodedata
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck
from hypothesis import strategies as st

WANTED = int(os.environ.get("DELAYQ_FUZZ_EXAMPLES", "0"))
PARTS = 3
GROWTH_BYTES = 16 * 1024  # interpreter tables grow by a few kilobytes; a small object leaked every tenth round is more

_TEXTS = [
    *("", " ", "a", "a b", "a:1", "a#1", "{a}", "a}", "{", "}", "{}", "}{", "a:{b}:pending", "msg:x", "meta", "#0"),
    *("é", "e\u0301", "\ufb01", "fi", "ﬀ", "I", "\u0131", "K", "\u212a", "\U0001f4a9", "\u200b", "\ufeff"),
    *("\xa0", "\u202e", "\ud800", "\udcff", "\udc80a", "\0", "a\0b", "\n", "\r\n", "a\nb", "\x08", "\t"),
    *("\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\x7f", "\x85", "\u2028", "[bold]x", "[/x]", ":smile:"),
    *("*", "?", "[a]", "\\", "a\\*", "~", "%", "%00", "%s", "$(id)", "`id`", "'", '"', "-1", "--", "--help", "-"),
    *("nan", "inf", "1e999", "9" * 20, "9" * 5000, "0x10", "٣", "²", "1_0", "null", "[", "True", "__proto__"),
    *("../../etc/passwd", "/dev/null", "x" * 129, "x" * 257, "é" * 65, "x" * 5000, "redis://"),
]
TEXTS = list(dict.fromkeys(_TEXTS))
"""Texts that have been known to break something, somewhere."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

texts = st.sampled_from(TEXTS) | st.text(st.characters(), max_size=40) | st.text("{}#:a1\\*é\0", max_size=12)


examples = hypothesis.settings(
    max_examples=WANTED or 100,
    derandomize=not WANTED,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Tries a property on the examples of the suite, or on as many new ones as the environment says."""


@st.composite
def mutations(draw: Any, of: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes that were then damaged once or a few times."""
    data = bytearray(draw(of))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(("flip", "cut", "put", "end", "twice")))
        if how == "flip" and start < len(data):
            data[start] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del data[start : start + draw(st.integers(1, 8))]
        elif how == "put":
            data[start:start] = draw(st.binary(min_size=1, max_size=8))
        elif how == "end":
            del data[start:]
        else:
            data += data[start : start + 64]
    return bytes(data)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with a few random changes: for thousands of quick rounds."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(changed) + 1)
        changed[start : start + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
    return bytes(changed)


def refusal(work: Callable[[], Any], error: type[Exception]) -> str:
    """Do something; return the text of the allowed error it raises, or "" if it raises none."""
    try:
        work()
    except error as raised:
        return str(raised)
    return ""


def growth(work: Callable[[int], Any], rounds: int) -> int:
    """Return by how many bytes this process grows in half of `rounds`; `work` gets the number of each round.

    A leak grows all the time, while a table of the interpreter doubles once. So the second half is measured in parts,
    and the part with the least growth counts.
    """
    for number in range(rounds // 2):
        work(number)
    gc.collect()
    tracemalloc.start()
    try:
        sizes = [tracemalloc.get_traced_memory()[0]]
        for part in range(PARTS):
            for number in range(rounds // 2 // PARTS):
                work(rounds // 2 + part * (rounds // 2 // PARTS) + number)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return PARTS * min(after - before for before, after in itertools.pairwise(sizes))
    finally:
        tracemalloc.stop()


def commands_to_a_terminal(shown: str) -> set[str]:
    """Return the characters that a terminal would obey, or that would reverse the text."""
    return {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\n"}
