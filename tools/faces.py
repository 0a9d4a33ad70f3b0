"""Generate the blocking API from the async one: ``python -m tools.faces``, or ``make faces``.

``delayq/aio/``, ``delayq/testing/aio/`` and a few modules of ``delayq/runtime`` are the source of what both APIs have.
Each is copied without `async` and `await`, and with the names below exchanged. What truly differs is written by hand,
side by side as ``x.py`` and ``x_async.py`` in ``delayq/runtime``, ``delayq/transport`` and ``delayq/testing``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "delayq"

MADE = {
    "aio/consumer": "consumer",
    "aio/dead_letters": "dead_letters",
    "aio/doctor": "doctor",
    "aio/ledger": "ledger",
    "aio/message": "model/message",
    "aio/message_group": "message_group",
    "aio/queue": "queue",
    "aio/queue_names": "queue_names",
    "aio/schedules": "schedules",
    "aio/task": "task",
    "aio/topic": "topic",
    "aio/topic_consumer": "topic_consumer",
    "aio/topic_group": "topic_group",
    "runtime/bells_async": "runtime/bells",
    "runtime/result_waits_async": "runtime/result_waits",
    "runtime/receive_wait_async": "runtime/receive_wait",
    "testing/aio/assertions": "testing/assertions",
    "testing/aio/clock": "testing/clock",
}
"""The modules of the async API, and the module generated from each, in ``delayq``."""

EXCHANGES = (
    (r" of the async API\b", ""),
    (r": `delayq\.\w+`, awaited\.$", "."),
    (r"<aio\.", "<"),
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAwaitable\[None\]", "None"),
    (r"\bAwaitable, ", ""),
    (r"\bcheck_async_handler\b", "check_handler"),
    (r"\bawaits=True\b", "awaits=False"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"for (\w+) in (\w+):\n +yield \1$", r"yield from \2"),
    (r"\bdelayq\.testing\.aio\b", "delayq.testing"),
    (r"\bdelayq\.aio\.message\b", "delayq.model.message"),
    (r"\bdelayq\.aio\b", "delayq"),
    (r"\b(\w+?)_async\b", r"\1"),
)
"""Patterns and their replacements, in code and text."""

TEXTS: dict[str, dict[str, str]] = {
    "aio/consumer": {
        "Leases are renewed while handlers run, unless one blocks the event loop: use a plain function to compute, or "
        "to wait without `await`.": "Leases are renewed while handlers run.",
        "An async one runs on the event loop, a plain one in a thread.": "",
        "Async handlers are cancelled.": "",
        "An async handler that takes longer is cancelled and a process is killed, which": "A process that takes longer "
        "is killed, which",
        "Its messages are then those of the sync API.": "",
        ", and awaited if async;": ";",
        "If the awaiting task is cancelled, the handlers are cancelled too, and their messages are handed back.": "",
    },
    "aio/dead_letters": {"It is a plain function.": ""},
    "aio/queue": {
        "Any number of tasks may share a queue, on one event loop at a time.": "Several threads may share a queue.",
        "A cancelled call hands back what it has claimed.": "",
        "An async function runs on the event loop, a plain one in a thread.": "",
        "it is a generator function;": "it is a coroutine or generator function;",
        "The function is async or plain; its": "Its",
    },
    "aio/topic": {"A topic belongs to one event loop.": "A topic may be used by several threads."},
    "aio/topic_consumer": {
        "An async one runs on the event loop, a plain one in a thread.": "",
        "Async handlers are cancelled.": "",
        "An async handler that takes longer is cancelled, which fails its delivery. A": "A",
    },
    "testing/aio/clock": {
        "Handlers run one at a time, and messages are acked, retried or buried as in production. Async handlers run in "
        "the test's task, plain ones in a thread.": "Handlers run in the test's thread, one at a time, and messages "
        "are acked, retried or buried as in production.",
    },
}
"""Sentences of a module that are true for only one of the two APIs."""

MARK = "\0"
"""Marks the paragraphs with a replaced sentence, which are wrapped again."""

ITEM = re.compile(r" *\w[\w, ]*: ")
SECTION = re.compile(r" *\w+:")
WIDTH = 120

HEAD = "# Made from delayq/{name}.py by `make faces`: change that file.\n"


def made(name: str) -> str:
    """Return the blocking module generated from an async one.

    Raises:
        ValueError: a text to exchange is not in it.
    """
    text = (PACKAGE / f"{name}.py").read_text("utf-8")
    for theirs, ours in TEXTS.get(name, {}).items():
        sentence = r"\s+".join(map(re.escape, theirs.split()))  # which may be broken over lines anywhere
        text, count = re.subn(sentence if ours else rf"\s*{sentence}", MARK + ours, text)
        if not count:
            raise ValueError(f"delayq/{name}.py no longer says {theirs!r}: change TEXTS in tools/faces.py")
    text = _wrapped(text)
    for pattern, replacement in EXCHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _formatted(HEAD.format(name=name) + text, target(name))


def _wrapped(text: str) -> str:
    """Wrap the paragraphs that contain a mark, and remove the marks."""
    paragraphs: list[list[str]] = []
    above = ""
    for line in text.split("\n"):
        if not paragraphs or _begins(line, above, paragraphs[-1][0]):
            paragraphs.append([])
        paragraphs[-1].append(line)
        above = line
    return "\n".join(_filled(each) if any(MARK in line for line in each) else "\n".join(each) for each in paragraphs)


def _begins(line: str, above: str, first: str) -> bool:
    """Return whether a line of a docstring begins a paragraph or an item, after one that begins with `first`."""
    is_item = ITEM.match(line) is not None and _indent(line) == _indent(first)
    is_aside = not above.strip() or not line.strip() or '"""' in line or above.endswith('"""')
    is_first = SECTION.fullmatch(above) is not None or len(_indent(line)) < len(_indent(above))
    return is_aside or is_first or is_item


def _filled(lines: list[str]) -> str:
    indent = _indent(lines[0])
    rest = _indent(lines[1]) if lines[1:] else indent + " " * 4 * bool(ITEM.match(lines[0]))
    words = " ".join(" ".join(lines).replace(MARK, "").split())
    return textwrap.fill(
        words, WIDTH, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def target(name: str) -> Path:
    """Return the file of a blocking module."""
    return PACKAGE / f"{MADE[name]}.py"


def _formatted(text: str, path: Path) -> str:
    """Sort the imports and format the lines, since names have become shorter."""
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--select", "I,UP034", "--fix-only"], ["format"]):
        arguments = [*ruff, *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(
            arguments, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, encoding="utf-8"
        ).stdout
    return text


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Change nothing; fail if a module is stale.")
def main(check: bool) -> None:
    """Write the modules that are stale."""
    stale = [name for name in MADE if not target(name).exists() or target(name).read_text("utf-8") != made(name)]
    for name in stale:
        if not check:
            target(name).write_text(made(name), "utf-8")
        click.echo(f"{'stale' if check else 'made'}: {target(name).relative_to(ROOT)}")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
