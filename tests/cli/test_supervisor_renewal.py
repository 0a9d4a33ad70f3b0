"""A supervisor whose process cannot be replaced, as its successor hangs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from delayq.cli.consume import supervisor
from delayq.cli.consume.supervisor import Child
from structlog.testing import capture_logs

from tests.cli.conftest import ended
from tests.harness.waiting import eventually

WORN = """
import os, pathlib, time
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
while pathlib.Path("hold").exists():
    time.sleep(0.01)
if not pathlib.Path("free").exists():
    pathlib.Path("hold").touch()
while True:
    stops = pathlib.Path("stops").exists()
    os.write(int(os.environ["DELAYQ_HEARTBEAT"]), b"." if stops else b"w")
    pathlib.Path(f"stops-{os.getpid()}").touch() if stops else None
    time.sleep(0.01)
"""
"""Says that it should be replaced as soon as it runs; the next ones hang at their start, until the test ends that."""

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Child]:
    monkeypatch.chdir(tmp_path)
    child = Child([sys.executable, "-I", "-S", "-c", WORN], number=0, tries=None)
    yield child
    child.end(time.monotonic())


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines that are logged."""
    with capture_logs() as lines:
        yield lines


def pids() -> list[int]:
    return [int(pid) for pid in Path("pids").read_text().split()] if Path("pids").exists() else []


def looks(child: Child, until: Callable[[], object]) -> bool:
    def look() -> bool:
        child.look(may_renew=not child.is_starting)
        return bool(until())

    return eventually(look, seconds=60)


def outcomes(lines: Lines, event: str) -> list[Any]:
    return [line.get("how") for line in lines if line["event"] == event]


def test_successor_that_hangs_is_killed_and_started_again(child: Child, lines: Lines, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.1)
    assert looks(child, lambda: len(outcomes(lines, "consumer process not recycled, retrying")) == 2)
    assert set(outcomes(lines, "consumer process not recycled, retrying")) == {"not ready after 0.1 s, killed"}
    assert outcomes(lines, "consumer process recycled") == []
    assert all(map(ended, pids()[1:]))
    monkeypatch.setattr(supervisor, "START_SECONDS", 60)
    Path("free").touch()
    Path("hold").unlink()
    assert looks(child, lambda: outcomes(lines, "consumer process recycled"))


def test_successor_that_was_ready_may_end_in_its_own_time(child: Child, lines: Lines, monkeypatch: pytest.MonkeyPatch):
    Path("free").touch()
    assert looks(child, lambda: outcomes(lines, "consumer process recycled"))
    (renewed,) = [line for line in lines if line["event"] == "consumer process recycled"]
    Path("stops").touch()  # it then says that it does not consume
    assert looks(child, Path(f"stops-{renewed['successor']}").exists)
    monkeypatch.setattr(supervisor, "START_SECONDS", 0)
    for _ in range(3):
        child.look(may_renew=False)
        time.sleep(0.1)
    assert outcomes(lines, "consumer process died, restarting") == []


def test_successor_that_hangs_in_the_place_of_a_dead_process_is_restarted(
    child: Child, lines: Lines, monkeypatch: pytest.MonkeyPatch
):
    assert looks(child, lambda: len(pids()) == 2)
    os.kill(pids()[0], signal.SIGKILL)
    assert looks(child, lambda: not child.is_starting)
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.1)
    assert looks(child, lambda: len(pids()) == 3)
    assert outcomes(lines, "consumer process died, restarting") == ["signal SIGKILL", "not ready after 0.1 s, killed"]
    assert ended(pids()[1])
    time.sleep(0.2)
    child.look(may_renew=True)
    assert not ended(pids()[2]), "one that replaces none may take its time, such as until its server answers"
