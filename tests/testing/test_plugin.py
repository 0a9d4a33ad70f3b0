"""The pytest plugin: its fixtures, and that it costs nothing where they are not used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from delayq import Queue
from delayq.testing import Clock, assert_sent

USER = """
from delayq import Queue
from delayq.testing import assert_sent

emails = Queue("emails", url="redis://127.0.0.1:1/0")

def test_of_a_queue(delayq_queue, delayq_clock):
    seen = []
    delayq_queue.handler(lambda message: seen.append(message.payload))
    delayq_queue.send("x", delay=7200)
    delayq_clock.advance(hours=2)
    delayq_clock.run_due()
    assert seen == ["x"]

def test_of_a_queue_of_ours(delayq_clock):
    delayq_clock.add(emails)
    emails.send("x")
    assert_sent(emails, "x")

def test_that_fails(delayq_queue):
    delayq_queue.send("x")
    assert_sent(delayq_queue, "y")
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a user does: without this project's settings."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *options, "."]
    return subprocess.run(
        command,
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_fixture_is_an_in_memory_queue_with_the_clock_of_the_clock_fixture(delayq_queue: Queue, delayq_clock: Clock):
    due_at = delayq_queue.send("x", delay=60).due_at
    delayq_clock.advance(60)
    assert delayq_clock.now() == due_at
    assert_sent(delayq_queue, "x")


def test_fixtures_are_available_wherever_delayq_is_installed(tmp_path: Path):
    (tmp_path / "test_user.py").write_text(USER)
    done = run_pytest(tmp_path)
    assert re.search(r"1 failed, 2 passed", done.stdout), done.stdout + done.stderr
    assert "AssertionError: no message with payload='y' in what was sent to tests" in done.stdout
    assert "raise AssertionError" not in done.stdout  # pytest shows the failure at the test's own assert


IMPORTS = """
import sys

PACKAGES = {"delayq", "redis", "fakeredis", "lupa", "msgspec", "hiredis"}

def test_that_asks_for_nothing():
    assert "_delayq_pytest" in sys.modules
    assert PACKAGES & set(sys.modules) == set()

def test_that_asks_for_a_queue(delayq_queue):
    assert PACKAGES - set(sys.modules) == set()
"""


def test_queue_is_imported_only_by_tests_that_use_it(tmp_path: Path):
    (tmp_path / "test_user.py").write_text(IMPORTS)
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
