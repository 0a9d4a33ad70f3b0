"""``--exec``: a program as the handler."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

import structlog

from delayq import signals
from delayq.errors import Reject, Verdict
from delayq.model.message import Message
from delayq.model.server_url import hide
from delayq.model.text import printable
from delayq.model.units import lease_ms
from delayq.runtime.group_watcher import GroupWatcher

EX_DATAERR = 65  # from sysexits.h: the input was wrong, so a retry would fail too
TAIL_BYTES = 1500  # of stderr, kept as the error
LINE_BYTES = 8192  # a longer line is logged in parts
STRAGGLER_SECONDS = 0.5  # to read the program's last output; a child that it left behind may keep stderr open forever
MERCY_SECONDS = 2.0  # between SIGTERM and SIGKILL
STOP_SECONDS = 0.5  # the same, for a message that is cancelled
HEADER = "DELAYQ_HEADER_"
URL = "DELAYQ_URL"
SECRETS = {URL, "DELAYQ_DASHBOARD_TOKEN", "DELAYQ_DATABASE_URL"}  # variables of delayq that hold a password

log = structlog.get_logger("delayq")


class ProgramFailed(Verdict):
    """The program did not end with exit code 0."""


class ProgramHandler:
    """Runs a shell command for each message, with the payload on stdin and the message's fields in the environment.

    Exit code 0 acks, 65 (EX_DATAERR) rejects, any other code or a signal nacks. The program's stdout passes through;
    its stderr is logged, and the end of it is kept as the error. The program runs in its own session, so that Ctrl-C
    reaches only delayq. If delayq is killed, the program and its process group are killed, too.

    Args:
        command: for ``sh -c``.
        timeout: seconds (0.001 to 86,400) before the program and all that it started are stopped; None for no limit.
            The message's own timeout overrides it.
        with_url: whether DELAYQ_URL, which may hold a password, is in the program's environment.
    """

    keeps_time = True

    def __init__(self, command: str, timeout: float | None = None, with_url: bool = False) -> None:
        self._command = command
        self._with_url = with_url
        self._timeout = None if timeout is None else lease_ms(timeout, "timeout") / 1000
        self._running: set[subprocess.Popen[bytes]] = set()
        self._watcher = GroupWatcher()
        self._lock = threading.Lock()
        self._ended = False

    def __call__(self, message: Message) -> None:
        """Run the program on a message.

        Raises:
            Reject: it exited with code 65.
            ProgramFailed: it exited with another code than 0, was killed, or took too long.
        """
        process = self._start(message)
        message.on_cancel = partial(self._stop, process)
        if message.cancelled:
            self._stop(process)
        tail = _Tail(process.stderr, message)
        timeout = self._timeout if message.timeout is None else message.timeout
        in_time = _waited(process, timeout)
        code = process.wait()
        with self._lock:
            self._running.discard(process)
            self._watcher.forget(process.pid)
        how = _how(code) if in_time else f"stopped after its time limit of {timeout:g} s"
        error = f"{how}: {tail.text()}".removesuffix(": ")
        if in_time and code == 0:
            return
        raise Reject(error) if in_time and code == EX_DATAERR else ProgramFailed(error)

    def end(self) -> None:
        """Stop the running programs with SIGTERM, then SIGKILL. No other program starts."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        _end(running)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop the program of a message that was cancelled; returns at once."""
        with self._lock:
            if process in self._running:
                threading.Thread(target=_end, args=([process], STOP_SECONDS), name="delayq-stop", daemon=True).start()

    def _start(self, message: Message) -> subprocess.Popen[bytes]:
        with payload_file(message.body) as payload, self._lock:
            if self._ended:
                raise ProgramFailed("not started: delayq is shutting down")
            process = self._watcher.start(
                self._command,
                stdin=payload,
                stderr=subprocess.PIPE,
                env=environment(message, self._with_url),
            )
            self._running.add(process)
        return process


def payload_file(body: bytes) -> IO[bytes]:
    """Return a file to read a payload from: in memory, since there may be no folder to write to; else a pipe."""
    try:
        file = os.fdopen(os.memfd_create("delayq-payload"), "w+b", buffering=0)
    except (AttributeError, OSError):  # not on macOS; a container may forbid it
        reading, writing = os.pipe()
        threading.Thread(target=_fill, args=(writing, body), name="delayq-payload", daemon=True).start()
        return os.fdopen(reading, "rb")
    file.write(body)
    file.seek(0)
    return file


def _fill(pipe: int, body: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb", buffering=0) as file:  # it need not read all
        while body:
            body = body[file.write(body) :]


def environment(message: Message, with_url: bool = False) -> dict[str, str]:
    """Return the environment of this process, with the fields of the message, and without secrets of delayq.

    Args:
        with_url: keep DELAYQ_URL. Otherwise a program that calls delayq is refused, rather than given another store.
    """
    hidden = SECRETS - ({URL} if with_url else set())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(HEADER) and name not in hidden}
    if URL in os.environ and not with_url:
        kept["DELAYQ_REQUIRE_URL"] = "1"
    described = {
        "DELAYQ_ID": message.id,
        "DELAYQ_QUEUE": message.queue,
        "DELAYQ_ATTEMPT": str(message.attempt),
        "DELAYQ_MAX_RETRIES": str(message.max_retries),
        "DELAYQ_DUE_AT": message.due_at.isoformat(timespec="milliseconds"),
    }
    for name, value in message.headers.items():
        described[HEADER + re.sub(r"[^A-Z0-9]", "_", name.upper())] = _text(value)
    described["DELAYQ_SCHEDULE"] = message.schedule or ""
    described["DELAYQ_SLOT"] = message.slot.isoformat(timespec="milliseconds") if message.slot else ""
    return kept | described


def _waited(process: subprocess.Popen[bytes], timeout: float | None) -> bool:
    """Wait for a program to end, and stop it at its time limit; return whether it ended in time."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        _end([process])
        return False
    return True


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = "" if value is None else str(value)
    return text.replace("\0", "")  # an environment cannot hold it


def _how(code: int) -> str:
    number = -code if code < 0 else code - 128  # how sh reports a program that it waited for
    name = signals.name(number)
    return f"killed by {name}" if name else f"exit code {code}"


def _end(running: Sequence[subprocess.Popen[bytes]], seconds: float = MERCY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    for process in running:
        _signal(process, signal.SIGTERM)
    while time.monotonic() < deadline and any(process.poll() is None for process in running):
        time.sleep(0.02)
    for process in running:
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class _Tail(threading.Thread):
    """Logs a program's stderr line by line, and keeps the end of it."""

    def __init__(self, stream: IO[bytes] | None, message: Message) -> None:
        super().__init__(daemon=True)
        assert stream is not None
        self._stream = stream
        self._log = log.bind(queue=message.queue, id=message.id, attempt=message.attempt)
        self._kept = b""
        self.start()

    def run(self) -> None:
        with self._stream:
            while line := self._stream.readline(LINE_BYTES):
                shown = hide(line.decode(errors="replace"), os.environ.get(URL))  # dead letters show it to others
                self._kept = (self._kept + shown.encode())[-TAIL_BYTES:]
                if text := shown.rstrip():
                    self._log.info(printable(text))

    def text(self) -> str:
        """Return the end of the program's stderr, once all of it is logged."""
        self.join(STRAGGLER_SECONDS)
        return self._kept.decode(errors="replace").strip()
