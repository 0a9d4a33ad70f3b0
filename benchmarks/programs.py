"""Runs a peer's program, and reads what it prints; `peers/protocol.py` tells what that is."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.environments import ROOT, command_for, requirements

PEERS = ROOT / "benchmarks" / "peers"
OWN = "delayq"
START_SECONDS = 60.0  # for a framework that imports much, on a busy machine
TAIL_BYTES = 600  # of stderr, told with an error
TOLD = {"peer", "version", "language", "throughput", "latency"}  # what a program must tell of itself
NOWHERE = "redis://127.0.0.1:1/0"  # for what needs no server


class PeerFailed(Exception):
    """A program did not do what it was asked for."""


class Unsupported(Exception):
    """A peer has no such thing."""


@dataclass(frozen=True)
class PeerProgram:
    """A queue that is measured.

    Attributes:
        key: names it in options and results.
        command: runs its program.
        about: what it tells of itself.
    """

    key: str
    command: list[str]
    about: dict[str, Any]

    @property
    def name(self) -> str:
        """For people."""
        return str(self.about["peer"])

    def ask(self, verb: str, url: str, seconds: float, **options: Any) -> dict[str, Any]:
        """Run a verb to its end; return its answer.

        Raises:
            PeerFailed: it failed, or was not done in so many seconds.
            Unsupported: it has no such thing.
        """
        with Program(self, verb, url, **options) as program:
            return program.answer(seconds)


def find_programs() -> dict[str, Path]:
    """Return the peers' programs by their keys: delayq's first, the others by name."""
    found = [each for each in PEERS.iterdir() if each.suffix in {".py", ".mjs"}]
    programs = {each.stem.removesuffix("_peer"): each for each in sorted(found) if _is_program(each)}
    return {key: programs[key] for key in sorted(programs, key=lambda key: (key != OWN, key))}


def _is_program(path: Path) -> bool:
    return path.stem == f"{OWN}_peer" or bool(requirements(path.read_text()))


def open_peer(key: str, path: Path) -> PeerProgram:
    """Return a peer, its environment made.

    Raises:
        NoEnvironment, PeerFailed
    """
    command = command_for(path)
    about = PeerProgram(key, command, {}).ask("describe", NOWHERE, START_SECONDS)
    if missing := sorted(TOLD - set(about)):
        raise PeerFailed(f"{key} describe does not tell {', '.join(missing)}")
    return PeerProgram(key, command, about)


class Program:
    """A run of a peer's program; killed at the end of the block if it still runs."""

    def __init__(self, peer: PeerProgram, verb: str, url: str, **options: Any) -> None:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        self._what = f"{peer.key} {verb}"
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the block
        self._rest = b""
        self.process = subprocess.Popen(
            [*peer.command, verb, "--url", url, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=tempfile.gettempdir(),  # what a framework looks for in its folder, it is not to find
            env=_environment(),
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _kill(self.process)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._said.close()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Return once it says that it consumes; raises PeerFailed."""
        line = self._line(seconds)
        if line != "ready":
            raise PeerFailed(f"{self._what} said {line[:200]!r} when it was to be ready")

    def answer(self, seconds: float) -> dict[str, Any]:
        """Return the answer, the last line, once the program has ended; raises PeerFailed and Unsupported."""
        deadline = time.monotonic() + seconds
        last = ""
        while line := self._line(deadline - time.monotonic()):
            last = line
        if self.process.wait():
            raise self._failed(f"ended with exit code {self.process.returncode}")
        try:
            answer: dict[str, Any] = json.loads(last)
        except ValueError:
            raise self._failed(f"answered {last[:200]!r}, which is no JSON") from None
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        return answer

    def _line(self, seconds: float) -> str:
        """Return the next line without its end; empty when there is none left."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise self._failed(f"said nothing for {seconds:.0f} s")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                line, self._rest = self._rest, b""
                return line.decode()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def _failed(self, how: str) -> PeerFailed:
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - TAIL_BYTES))
        return PeerFailed(f"{self._what} {how}: {self._said.read().decode(errors='replace').strip()}")


def _environment() -> dict[str, str]:
    """The environment, without what would lead a program to other packages or another server."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "DELAYQ_URL", "DELAYQ_HOME")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started: it leads a session of its own."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
    process.wait()
