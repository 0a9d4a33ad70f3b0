"""docs/from/cron.md: what its program makes of each part of a crontab."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from delayq import Queue
from tests.conftest import StartServer
from tests.harness.guides import Program, rows, unpack

pytestmark = pytest.mark.same_on_all_servers

PAGE = "cron.md"
PLAIN = {"timezone": "Europe/Berlin", "exec": "./job.sh", "missed": "skip", "max_retries": 0}
EVERY = {"when": "* * * * *"}
MACROS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")

CARRIED: dict[str, tuple[str, dict[str, Any]]] = {  # part: lines with it, and what differs in the schedule
    "* * * * *": ("0,30 1-5/2 * JAN mon-fri ./job.sh", {"when": "0,30 1-5/2 * JAN mon-fri"}),
    "CRON_TZ": ("CRON_TZ=Asia/Tokyo\n* * * * * ./job.sh", EVERY | {"timezone": "Asia/Tokyo"}),
    "RANDOM_DELAY": ("RANDOM_DELAY = 7\n* * * * * ./job.sh", EVERY | {"jitter": "7m"}),
    "command": ("* * * * * a 'b'  c # d", EVERY | {"exec": "a 'b'  c # d"}),
    r"\%": (r"* * * * * date +\%Y", EVERY | {"exec": "date +%Y"}),
} | {macro: (f"{macro} ./job.sh", {"when": macro}) for macro in MACROS}
LEFT = {  # part: a line with it, and what the program says
    "@reboot": ("@reboot ./job.sh", "left out, for its time"),
    "%": ("* * * * * cat %input", "left out, for its input after %"),
    "~": ("0~59 * * * * ./job.sh", "left out, for its time"),
    "-": ("-0 * * * * ./job.sh", "left out, for its time"),
    "SHELL": ("SHELL=/bin/bash", "set this for the consumer"),
    "PATH": ("PATH=/bin", "set this for the consumer"),
    "HOME": ("HOME=/tmp", "set this for the consumer"),
    "MAILTO": ("MAILTO=a@example.org", "set this for the consumer"),
    "NAME=value": ('"NAME" = "a value"', "set this for the consumer"),
}
BEYOND = {  # of other crons, or of nobody
    "@every_minute": "@every_minute ./job.sh",
    "four fields": "* * * * ./job.sh",
    "words": "run this at noon, please, now",
}


def convert(folder: Path, crontab: str) -> tuple[dict[str, Any], list[str]]:
    """Run the guide's program; returns the schedules and what it said."""
    unpack(PAGE, folder)
    done = subprocess.run(
        [sys.executable, "convert.py", "Europe/Berlin"],
        cwd=folder,
        input=crontab,
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "jobs.toml").write_text(done.stdout)
    return tomllib.loads(done.stdout), done.stderr.splitlines()


def test_table_has_each_part_of_a_crontab_and_each_has_a_test():
    fates = dict.fromkeys(CARRIED, "carried") | dict.fromkeys(LEFT, "left behind") | {"# comment": "dropped"}
    assert rows(PAGE) == fates


@pytest.mark.full
def test_each_line_is_converted_or_left_out_and_named(start_server: StartServer, tmp_path: Path):
    reset = "CRON_TZ=Europe/Berlin\nRANDOM_DELAY=0\n"
    carried = "".join(f"# {part}\n{lines}\n{reset}" for part, (lines, _) in CARRIED.items())
    left = [line for line, _ in LEFT.values()] + list(BEYOND.values())

    schedules, said = convert(tmp_path, carried + "\n".join(left))

    assert list(schedules.values()) == [PLAIN | expected for _, expected in CARRIED.values()]
    expected = [f"{why}: {line}" for line, why in LEFT.values()]
    assert said == expected + [f"left out, for its time: {line}" for line in BEYOND.values()]
    program = Program(tmp_path, {"DELAYQ_URL": start_server(port=True).url})
    loaded = program.run("delayq", "cron", "load", "--create", "cron", "jobs.toml")
    assert len(loaded.splitlines()) == len(CARRIED)
    assert "nothing changed" in program.run("delayq", "cron", "load", "cron", "jobs.toml")


@pytest.mark.full
def test_slot_is_skipped_while_the_last_run_runs_with_concurrency_1_and_a_short_grace(
    start_server: StartServer, tmp_path: Path
):
    url = start_server(port=True).url
    program = Program(tmp_path, {"DELAYQ_URL": url})
    (tmp_path / "jobs.toml").write_text(
        '[books]\nwhen = "every 1s"\nexec = "echo start; sleep 3; echo end"\nmissed = "skip"\ngrace = "1s"\n'
    )
    program.run("delayq", "configure", "--create", "books", "--concurrency", "1")
    program.run("delayq", "cron", "load", "books", "jobs.toml")
    done = program.run("delayq", "consume", "books", "--exec", "sh", "--concurrency", "4", "--max-messages", "3")
    assert re.fullmatch("(start\nend\n)+", done)
    with Queue("books", url=url) as queue:
        assert queue.stats().expired >= 2
