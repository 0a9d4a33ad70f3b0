"""convert: the command in the error message runs as printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from delayq import Queue
from delayq.transport.embedded.binaries import Version, write_version
from delayq.transport.embedded.convert import KEPT
from tests.cli.conftest import Invoke
from tests.harness.stores import Watched, use_program
from tests.harness.waiting import eventually


def test_command_in_the_error_message_restores_the_messages(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = f"embedded://{tmp_path / 'a store'}"
    use_program(monkeypatch, "8.2")
    with Queue("jobs", url=url) as queue:
        queue.send("payload", id="one")
    assert eventually(Watched(tmp_path / "a store").is_at_rest)
    use_program(monkeypatch, "valkey-9.1")
    refused = invoke("peek", "jobs", "--url", url)
    assert refused.exit_code == 1
    (named,) = re.findall(r"run `delayq convert '(.*)'`", refused.stderr)
    done = invoke("convert", named)
    assert re.fullmatch(
        rf"valkey 9\.1\.\d+ can open {named} now; the files of redis 8\.2\.\d+ are kept in appendonlydir\.redis\n",
        done.stdout,
    )
    assert "one" in invoke("peek", "jobs", "--url", url).stdout
    assert invoke("convert", named).exit_code == 1
    assert eventually(Watched(tmp_path / "a store").is_at_rest)
    write_version(tmp_path / "a store", Version("redis", (8, 2, 3)))  # as a run leaves it if it is killed at its end
    shutil.rmtree(tmp_path / "a store" / KEPT)
    assert invoke("convert", named).stdout.endswith("; the files of redis 8.2.3 were deleted before this run\n")
