"""The command line in a locale that is not UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.servers import RedisServer

LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
HANDLERS = """
from delayq import Queue

queue = Queue("jobs")


@queue.handler
def handle(message):
    print(ascii(message.payload), flush=True)
    raise ValueError("kein Gruß 漢")
"""


def test_commands_work_in_a_locale_that_is_not_utf_8(redis_server: RedisServer, tmp_path: Path):
    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "delayq", *words],
            env=os.environ | LATIN | {"DELAYQ_URL": redis_server.url},
            cwd=tmp_path,
            input=given.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"UnicodeEncodeError" not in done.stderr
        assert done.returncode == 0, done.stderr.decode("latin-1")
        return done.stdout.decode("utf-8" if "--json" in words else "latin-1")

    (tmp_path / "handlers.py").write_text(HANDLERS, "utf-8")
    (tmp_path / "jobs.toml").write_text('["gruß"]\nwhen = "@daily"\n', "utf-8")
    (tmp_path / "lines.jsonl").write_text('{"payload": "Grüße 漢", "id": "zwölf", "max_retries": 0}\n', "utf-8")
    run("send", "jobs", "--file", "lines.jsonl")
    run("cron", "load", "jobs", "jobs.toml")
    assert "Grüße 漢" in run("peek", "jobs", "--json")  # JSON is UTF-8 everywhere
    assert "Grüße \\u6f22" in run("peek", "jobs")
    assert r"'Gr\xfc\xdfe \u6f22'" in run("consume", "handlers:queue", "--burst")
    assert "kein Gruß 漢".replace("漢", "\\u6f22") in run("dead", "list", "jobs")
    assert "gruß" in run("cron", "list", "jobs")
    run("stats", "jobs")
    run("--help")
    run("send", "--help")
