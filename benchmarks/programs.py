"""Runs a peer's program and reads its output; see `peers/protocol.py`."""

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
START_SECONDS = 60.0  # for a framework with many imports on a busy machine
TAIL_BYTES = 600  # of stderr, quoted in an error
REQUIRED = {"peer", "version", "language", "throughput", "latency"}  # what `describe` must contain
NOWHERE = "redis://127.0.0.1:1/0"  # for verbs that need no server


class PeerFailed(Exception):
    """A program did not do what it was asked to do."""


class Unsupported(Exception):
    """A peer does not support this."""


@dataclass(frozen=True)
class PeerProgram:
    """A queue to measure.

    Attributes:
        key: its name in options and results.
        command: the command that runs its program.
        about: the answer of `describe`.
    """

    key: str
    command: list[str]
    about: dict[str, Any]

    @property
    def name(self) -> str:
        """The name for people."""
        return str(self.about["peer"])

    def ask(self, verb: str, url: str, seconds: float, **options: Any) -> dict[str, Any]:
        """Run a verb to its end; return its answer.

        Raises:
            PeerFailed: it failed, or took too long.
            Unsupported: the peer does not support it.
        """
        with Program(self, verb, url, **options) as program:
            return program.answer(seconds)


def find_programs() -> dict[str, Path]:
    """Return the peers' programs by key: delayq first, the others by name."""
    found = [each for each in PEERS.iterdir() if each.suffix in {".py", ".mjs", ".go"}]
    programs = {each.stem.removesuffix("_peer"): each for each in sorted(found) if _is_program(each)}
    return {key: programs[key] for key in sorted(programs, key=lambda key: (key != OWN, key))}


def _is_program(path: Path) -> bool:
    return path.stem == f"{OWN}_peer" or bool(requirements(path.read_text("utf-8")))


def open_peer(key: str, path: Path) -> PeerProgram:
    """Return a peer, after creating its environment.

    Raises:
        NoEnvironment, PeerFailed
    """
    command = command_for(path)
    about = PeerProgram(key, command, {}).ask("describe", NOWHERE, START_SECONDS)
    if missing := sorted(REQUIRED - set(about)):
        raise PeerFailed(f"{key} describe lacks {', '.join(missing)}")
    return PeerProgram(key, command, about)


class Program:
    """A run of a peer's program; the end of the block kills it if it still runs."""

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
            cwd=tempfile.gettempdir(),  # so that a framework finds nothing in its working directory
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
        """Return once it reports that it consumes; raise PeerFailed otherwise."""
        line = self._line(seconds)
        if line != "ready":
            raise PeerFailed(f"{self._what} printed {line[:200]!r} instead of 'ready'")

    def answer(self, seconds: float) -> dict[str, Any]:
        """Return the answer, which is the last line, once the program has ended; raise PeerFailed or Unsupported."""
        deadline = time.monotonic() + seconds
        last = ""
        while line := self._line(deadline - time.monotonic()):
            last = line
        if self.process.wait():
            raise self._failed(f"exited with code {self.process.returncode}")
        try:
            answer: dict[str, Any] = json.loads(last)
        except ValueError:
            raise self._failed(f"answered {last[:200]!r}, which is not JSON") from None
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        return answer

    def _line(self, seconds: float) -> str:
        """Return the next line without its end; empty if there is none."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:  # noqa: TID251
                raise self._failed(f"printed nothing for {seconds:.0f} s")
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
    """The environment, without variables that would lead a program to other packages or another server."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "DELAYQ_URL", "DELAYQ_HOME")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants; it leads its own session."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
    process.wait()
