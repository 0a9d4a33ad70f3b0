"""What the commands of the jobs show of Spark's own log, in a process and a Java of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.servers import RedisServer
from tests.harness.spark.absent import absent

MOST_LINES = 5  # a word of Java's, one on the server, one of the sink's


def test_row_that_is_refused_takes_a_handful_of_lines_and_no_traceback(redis_server: RedisServer, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text('{"payload": null, "delay": 60}\n')
    hidden = str(absent(tmp_path / "absent"))
    environment = os.environ | {"DELAYQ_URL": redis_server.url, "PYTHONPATH": hidden, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "delayq.cli", "pipeline", "schedule", "emails", "rows.jsonl"]
    done = subprocess.run(
        [*command, "--master", "local[1,2]"],  # with a second try
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines) <= MOST_LINES, "Traceback" in done.stderr) == (1, True, False), done.stderr
    assert lines[-1].startswith("delayq: row 0 of partition 0 cannot be sent: payload is null.")
