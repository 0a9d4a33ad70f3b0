"""Log lines: where they go, and how people read them. Any value that a user chose is shown as one value."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
import structlog

from delayq.log import log
from delayq.model.outage import Outage

WAYS = {
    "standard": "import logging; logging.basicConfig(level='INFO'); from delayq.log import log",
    "command": "from delayq.cli.logging import configure; configure(); from delayq.log import log",
}


@pytest.mark.parametrize("way", WAYS)
def test_value_that_looks_like_another_field_or_line_is_quoted(way: str):
    names = ["ann", "a b", "ann who=eve", "ann\nwho=eve", "'", '"', "", "a=b", "\u2028", "\x1b[2J", "ä", "order-42"]
    program = f"{WAYS[way]}\nfor name in {names!r}: log.info('audit', who=name, yes='no')"
    result = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True).stderr
    lines = [line.partition("who=")[2] for line in result.split("\n")[:-1]]
    assert lines == [f"{name if name in {'ann', 'ä', 'order-42'} else repr(name)} yes=no" for name in names]


def test_line_is_a_record_of_the_standard_library_with_its_fields(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "delayq"), structlog.contextvars.bound_contextvars(tenant="acme"):
        log.bind(queue="jobs").warning("100% failed", error="no such thing", name="mine", exc_info=KeyError("a"))
        log.debug("not asked for")
    (record,) = caplog.records
    assert record.getMessage() == "100% failed queue=jobs error='no such thing' name=mine tenant=acme"
    assert record.msg == "100%% failed queue=%s error=%s name=%s tenant=%s"
    assert (record.name, record.levelname, record.module) == ("delayq", "WARNING", "test_log")
    assert (vars(record)["queue"], vars(record)["error"]) == ("jobs", "no such thing")
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_configured_structlog_gets_the_lines(caplog: pytest.LogCaptureFixture):
    with structlog.testing.capture_logs() as lines:
        log.warning("noticed", queue="jobs")
    assert lines == [{"event": "noticed", "queue": "jobs", "log_level": "warning"}]
    assert caplog.records == []


@pytest.mark.parametrize(
    ("setting", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_lines_on_a_terminal_are_coloured_unless_disabled(setting: dict[str, str], is_coloured: bool):
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    program = f"{WAYS['command']}; log.info('noticed')"
    subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment | setting, check=True)
    os.close(theirs)
    assert (b"\x1b[" in os.read(ours, 1000)) is is_coloured
    os.close(ours)


def test_outage_is_logged_when_it_begins_and_every_minute():
    now = [0.0]
    outage = Outage(clock=lambda: now[0], queue="jobs")
    with structlog.testing.capture_logs() as lines:
        for now[0] in range(150):
            outage.lost(ConnectionError(f"refused at {now[0]}"))
        outage.served()
    assert [line.get("error") for line in lines] == ["refused at 0", "refused at 60", "refused at 120", None]


UNCONFIGURED = """
from delayq.log import log

log.info("begun")
log.warning("lease lost", queue="emails")
"""


def test_program_that_configures_no_logging_sees_warnings_once():
    run = subprocess.run([sys.executable, "-c", UNCONFIGURED], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "lease lost queue=emails\n")
