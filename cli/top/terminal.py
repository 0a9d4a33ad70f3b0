"""The terminal of `delayq top`: it draws frames and reads keys."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from delayq import signals

Draw = Callable[[Callable[[int, int], Any]], None]
Wait = Callable[[float], list[str]]

BYTES = 1024  # per read, for keys that are held down or pasted
NAMED = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\x08": "backspace",
}
_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])|.", re.DOTALL)


@contextmanager
def screen() -> Generator[tuple[Draw, Wait]]:
    """Yield a function that draws a frame for the terminal's size, and one that waits for keys.

    The wait also ends, without a key, when the terminal changes its size. At the end, and on SIGTERM, the terminal is
    restored.
    """
    from rich.console import Console  # noqa: PLC0415  # only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    console = Console()
    live = Live(console=console, screen=True, auto_refresh=False)

    def draw(frame: Callable[[int, int], Any]) -> None:
        live.update(frame(console.width, console.height), refresh=True)

    with ExitStack() as stack:
        resized = stack.enter_context(_resizes())
        keyboards = stack.enter_context(_keyboards())
        stack.enter_context(signals.handled(_ended, (signal.SIGTERM,)))
        stack.enter_context(live)
        yield draw, lambda seconds: _wait(keyboards, resized, seconds)


def keys(text: str) -> list[str]:
    """Return the keys in a terminal's input: characters, and names of other keys; unknown keys are left out."""
    found = _KEY.findall(text)
    return [NAMED.get(each, each) for each in found if each in NAMED or len(each) == 1]


def _wait(keyboards: list[int], resized: int, seconds: float) -> list[str]:
    ready, _, _ = select.select([*keyboards, resized], [], [], seconds)  # noqa: TID251  # poll of macOS does not know terminals
    if resized in ready:
        os.read(resized, BYTES)
    return [key for each in keyboards if each in ready for key in keys(os.read(each, BYTES).decode(errors="replace"))]


def _ended(*_: Any) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


@contextmanager
def _resizes() -> Generator[int]:
    """Yield a file descriptor that becomes readable when the terminal changes its size."""
    own, others = os.pipe()
    os.set_blocking(others, False)

    def tell(*_: Any) -> None:
        os.write(others, b".")

    try:
        with signals.handled(tell, (signal.SIGWINCH,)):
            yield own
    finally:
        os.close(own)
        os.close(others)


@contextmanager
def _keyboards() -> Generator[list[int]]:
    """Yield the keyboard in a mode that reports each key at once, or nothing without a keyboard."""
    if not sys.stdin.isatty():
        yield []
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield [keyboard]
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
