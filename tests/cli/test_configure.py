"""configure: limits are set, removed and shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from delayq import Queue
from delayq.types import Configuration
from tests.cli.conftest import Invoke


def test_limits_are_set_and_shown(invoke: Invoke, queue: Queue):
    result = invoke("configure", "emails", "--rate", "100/s", "--concurrency", "20", "--per-key", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["rate", "100/s"],
        ["concurrency", "20"],
        ["per", "key", "2"],
    ]
    assert queue.configuration() == Configuration(rate="100/s", concurrency=20, concurrency_per_key=2)


def test_settings_stay_unless_they_are_given_or_removed(invoke: Invoke, queue: Queue):
    queue.configure(rate="100/s", concurrency=20, concurrency_per_key=2)
    invoke("configure", "emails", "--no-rate", "--concurrency", "7")
    assert queue.configuration() == Configuration(concurrency=7, concurrency_per_key=2)
    result = invoke("configure", "emails", "--no-concurrency", "--no-per-key")
    assert (result.stdout, result.stderr) == ("", "nothing is configured for queue emails\n")


def test_without_options_limits_are_shown_and_not_changed(invoke: Invoke, queue: Queue):
    queue.configure(rate="5/10s")
    assert invoke("configure", "emails").stdout.split() == ["rate", "5/10s"]
    shown = json.loads(invoke("configure", "emails", "--json").stdout)
    others = ("concurrency", "concurrency_per_key", "events", "max_retries", "backoff", "max_dead", "max_length")
    assert shown == {"rate": "5/10s"} | dict.fromkeys(others)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "100"], "'--rate': rate '100' has no unit of time: write it as \"100/s\""),
        (["--concurrency", "0"], "'0' is not a whole number from 1 to 1,000,000: --no-concurrency removes the setting"),
        (["--concurrency", "many"], "'--concurrency': 'many' is not a whole number"),
        (["--per-key", "1000001"], "'--per-key': '1000001' is not a whole number from 1 to 1,000,000: --no-per-key"),
        (["--events", "0"], "'--events': '0' is not a whole number from 1 to 10,000,000: put QUEUE before --events"),
        (["--events", "1000000000"], "'1000000000' is not a whole number from 1 to 10,000,000"),
        (["--max-retries", "-1"], "'-1' is not a whole number from 0 to 1,000,000: --no-max-retries removes"),
        (["--backoff", "soon"], "'--backoff': unknown backoff 'soon'; write it as \"fixed:10s\""),
        (["--backoff", "fixed:1s", "--no-backoff"], "give either --backoff or --no-backoff, not both"),
        (["--max-dead", "0"], "'0' is not a whole number from 1 to 1,000,000: --no-max-dead removes the setting"),
        (["--max-length", "0"], "'0' is not a whole number from 1 to 10,000,000: --no-max-length removes the setting"),
        (["--max-length", "1000000000"], "'1000000000' is not a whole number from 1 to 10,000,000"),
        (["--rate", "1/s", "--no-rate"], "give either --rate or --no-rate, not both"),
        (["--per-key", "1", "--no-per-key"], "give either --per-key or --no-per-key, not both"),
    ],
)
def test_bad_limit_is_refused_and_nothing_is_changed(invoke: Invoke, queue: Queue, options: list[str], words: str):
    queue.configure(rate="5/s")
    result = invoke("configure", "emails", *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert queue.configuration() == Configuration(rate="5/s")


@pytest.mark.parametrize(
    ("options", "events"), [(["--events"], 100_000), (["--events", "500"], 500), (["--no-events"], None)]
)
def test_ledger_is_turned_on_and_off(invoke: Invoke, queue: Queue, options: list[str], events: int | None):
    if events is None:
        queue.configure(events=True)
    assert invoke("configure", "emails", *options).exit_code == 0
    assert queue.configuration() == Configuration(events=events)
    shown = invoke("configure", "emails")
    assert shown.stdout.split() == (["events", str(events)] if events else [])


def test_message_sent_by_the_command_has_the_configured_retries(invoke: Invoke, queue: Queue):
    shown = invoke("configure", "emails", "--max-retries", "0", "--backoff", "sequence:1s,2m")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["max", "retries", "0"],
        ["backoff", "sequence:1s,120s"],
    ]
    assert queue.configuration() == Configuration(max_retries=0, backoff="sequence:1s,120s")
    invoke("send", "emails", "x", "--id", "a")
    invoke("send", "emails", "x", "--id", "b", "--max-retries", "2")
    assert [info.max_retries for info in queue.peek()] == [0, 2]
    invoke("configure", "emails", "--no-max-retries", "--no-backoff")
    assert queue.configuration() == Configuration()


def test_stats_show_the_limits_that_are_set(invoke: Invoke, queue: Queue):
    queue.send("x")
    assert "rate" not in invoke("stats", "emails").stdout + invoke("stats", "emails", "--json").stdout
    queue.configure(rate="5/s", concurrency=3)
    lines = [line.split() for line in invoke("stats", "emails").stdout.splitlines()]
    assert ["rate", "5/s"] in lines
    assert ["concurrency", "3"] in lines
    assert json.loads(invoke("stats", "emails", "--json").stdout)["rate"] == "5/s"


def test_limit_is_checked_before_the_store_is_created(invoke: Invoke, tmp_path: Path):
    url = f"embedded://{tmp_path / 'none'}"
    for wrong in (["--rate", "9/y"], ["--per-key", "0"], ["--rate", "9/m", "--no-rate"]):
        assert invoke("configure", "emails", "--url", url, *wrong).exit_code == 2
    assert not (tmp_path / "none").exists()


def test_rate_per_minute_has_a_short_form(invoke: Invoke):
    assert invoke("configure", "emails", "--rate", "9/m").stdout.split() == ["rate", "9/min"]


def test_number_of_dead_letters_is_stored_shown_and_removed(invoke: Invoke, queue: Queue):
    assert invoke("configure", "emails", "--max-dead", "10000").stdout.split() == ["max", "dead", "10000"]
    assert queue.configuration() == Configuration(max_dead=10_000)
    queue.send("payload")
    assert re.search(r"^max dead +10000$", invoke("stats", "emails").stdout, re.MULTILINE)
    invoke("configure", "emails", "--no-max-dead")
    assert queue.configuration() == Configuration()
