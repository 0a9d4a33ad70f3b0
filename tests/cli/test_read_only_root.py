"""Consumers need no folder to write to, as in a container with a read-only root file system."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from delayq import Queue, Topic
from tests.cli.conftest import Invoke, Run
from tests.harness.servers import RedisServer

LARGE = os.urandom(1_000_000)
# A container still has its /dev.
READ_ONLY = """
mount --make-rprivate /
for place in $(awk '{print $2}' /proc/self/mounts | grep -vE '^/(proc|sys|dev)'); do
  mount -o remount,bind,ro "$place" 2>/dev/null
done
! touch "$HOME/x" /tmp/x 2>/dev/null || exit 99
exec "$@"
"""


@pytest.fixture(params=["in memory", "through a pipe"])
def without_folders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder for temporary files can be written to; on some systems, there are no files in memory either."""
    for name in ("queue", "tmp_path"):  # these need such a folder
        request.getfixturevalue(name)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    if request.param == "through a pipe":
        monkeypatch.delattr(os, "memfd_create", raising=False)


@pytest.mark.usefixtures("without_folders")
def test_program_gets_its_payload_without_a_temporary_file(invoke: Invoke, queue: Queue, tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    queue.send(LARGE)
    queue.send(b"")
    done = invoke("consume", "emails", "--exec", f"sha256sum >> {tmp_path}/sums", "--burst")
    assert done.exit_code == 0
    sums = [line.split()[0] for line in (tmp_path / "sums").read_text().splitlines()]
    assert sorted(sums) == sorted(hashlib.sha256(body).hexdigest() for body in (LARGE, b""))
    assert queue.stats().acked == 2


@pytest.mark.usefixtures("without_folders")
def test_program_need_not_read_its_payload(invoke: Invoke, queue: Queue):
    queue.send(LARGE)
    assert invoke("consume", "emails", "--exec", "head -c 1 >/dev/null", "--burst").exit_code == 0
    assert queue.stats().acked == 1


HANDLERS = """
from delayq import Queue
calls = Queue("calls")
@calls.handler
def call(message):
    print("handled", message.payload, flush=True)
def bill(record):
    print("handled", record.payload, flush=True)
"""
COMMANDS = {
    "exec": "consume emails --exec cat",
    "processes": "consume emails --exec cat -p 2",
    "pool": "consume handlers:calls --pool process --concurrency 2",
    "topic": "consume --topic orders --group billing --start 0 handlers:bill",
}


def can_mount() -> bool:
    words = ["unshare", "-m", "sh", "-c", "mount --make-rprivate /"]
    return (
        shutil.which("unshare") is not None and not subprocess.run(words, capture_output=True, check=False).returncode
    )


@pytest.mark.full
@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_consumer_works_with_a_read_only_root(delayq: Run, server: RedisServer, tmp_path: Path, words: str):
    if not can_mount():
        pytest.skip("mounts cannot be changed here")
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with Queue("emails", url=server.url) as emails, Queue("calls", url=server.url) as calls:
        emails.send(b"hello")
        calls.send("hello")
    with Topic("orders", url=server.url) as orders:
        orders.publish("hello")
    delayq("stats")  # compiles what a container's image has compiled
    command = shutil.which("delayq", path=str(Path(sys.executable).parent))
    program = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", command]
    done = delayq(*words.split(), "--burst", program=program)
    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stderr
