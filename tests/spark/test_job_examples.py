"""The examples of the jobs' help run as they are printed."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayq.cli import main

from tests.cli.test_help import example
from tests.harness.servers import RedisServer


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("job", ["schedule", "redrive", "drain", "restore", "report", "lag"])
def test_each_line_of_the_example_succeeds(
    job: str, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    invoke = CliRunner(env={"DELAYQ_URL": redis_server.url}).invoke
    for line in example(invoke(main, ["pipeline", job, "--help"]).stdout).splitlines():
        program, *words = shlex.split(line)
        if program == "delayq":
            done = invoke(main, words)
            assert (done.exit_code, done.stdout != "") == (0, True), done.output
        else:
            subprocess.run(line, shell=True, check=True)
