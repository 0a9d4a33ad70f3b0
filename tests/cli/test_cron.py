"""cron add, list, next, run, pause, resume and remove."""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Consumer, Queue
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer


def test_schedule_is_added_listed_and_removed(invoke: Invoke):
    added = invoke(
        "cron", "add", "cron", "nightly", "0 3 * * *", '{"full": true}', "--timezone", "Europe/Berlin", "-H", "a=b"
    )
    assert added.stdout.startswith("nightly in cron, next in ")
    (known,) = [json.loads(line) for line in invoke("cron", "list", "cron", "--json").stdout.splitlines()]
    assert (known["name"], known["when"], known["timezone"]) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert (known["payload"], known["headers"], known["paused"]) == ({"full": True}, {"a": "b"}, False)
    assert "nightly" in invoke("cron", "list", "cron").stdout
    assert invoke("cron", "remove", "cron", "nightly").stdout == "removed nightly\n"
    assert invoke("cron", "list", "cron", "--json").stdout == ""


def test_next_slots_are_those_of_the_library(invoke: Invoke, server: RedisServer):
    start = ["--start", "2090-01-01T00:00Z"]  # else one of them could fire between the two looks
    invoke("cron", "add", "cron", "tick", "*/5 * * * *", *start)
    invoke("cron", "add", "cron", "tock", "every 7m", *start)
    shown = [json.loads(line) for line in invoke("cron", "next", "cron", "-n", "9", "--json").stdout.splitlines()]
    with Queue("cron", url=server.url) as queue:
        expected = [{"schedule": slot.schedule, "at": slot.at} for slot in queue.schedules.next(9)]
    assert [(each["schedule"], each["at"][:19]) for each in shown] == [
        (each["schedule"], f"{each['at']:%Y-%m-%dT%H:%M:%S}") for each in expected
    ]
    assert invoke("cron", "next", "cron", "tock").stdout.count("tock") == 5


def test_paused_schedule_is_shown_as_such_and_resumes(invoke: Invoke):
    invoke("cron", "add", "cron", "tick", "* * * * *")
    assert invoke("cron", "pause", "cron", "tick").stdout == "paused tick\n"
    assert "paused" in invoke("cron", "list", "cron").stdout
    assert invoke("cron", "resume", "cron", "tick").stdout == "resumed tick\n"
    assert "paused" not in invoke("cron", "list", "cron").stdout


def test_start_end_and_jitter_are_kept_and_shown(invoke: Invoke):
    options = ["--start", "2030-01-01T00:00+01:00", "--end", "2030-02-01T00:00+01:00", "--jitter", "5m"]
    added = invoke("cron", "add", "cron", "tick", "@daily", *options)
    assert "(2030-01-0" in added.stdout
    (known,) = [json.loads(line) for line in invoke("cron", "list", "cron", "--json").stdout.splitlines()]
    assert (known["start"], known["end"], known["jitter"]) == ("2029-12-31T23:00:00Z", "2030-01-31T23:00:00Z", 300)
    assert "@daily, jitter 5m, until 2030-0" in invoke("cron", "list", "cron").stdout
    assert len(invoke("cron", "next", "cron", "-n", "99", "--json").stdout.splitlines()) == 31


def test_schedule_whose_end_is_past_is_shown_as_finished(invoke: Invoke):
    added = invoke("cron", "add", "cron", "tick", "* * * * *", "--end", "2020-01-01T00:00Z")
    assert added.stdout == "tick in cron, finished\n"
    assert "finished" in invoke("cron", "list", "cron").stdout
    assert invoke("cron", "next", "cron").stderr == "no schedule of queue cron will fire again\n"
    resumed = invoke("cron", "resume", "cron", "tick")
    assert (resumed.exit_code, "add it with a later end" in resumed.stderr) == (2, True)


@pytest.mark.parametrize("call", ["pause", "resume", "remove", "run", "next"])
def test_missing_schedule_is_exit_code_1(invoke: Invoke, call: str):
    result = invoke("cron", call, "cron", "nightly")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "delayq: queue cron has no schedule 'nightly': see delayq cron list cron\n"


def test_command_of_a_schedule_is_run_by_a_consumer_that_hands_it_to_a_shell(
    invoke: Invoke, capfd: pytest.CaptureFixture[str]
):
    assert invoke("cron", "add", "cron", "report", "@daily", "--exec", "echo the report; exit 0").exit_code == 0
    assert invoke("cron", "run", "cron", "report").stdout.startswith("sent ")
    assert invoke("consume", "cron", "--exec", "sh", "--burst").exit_code == 0
    assert capfd.readouterr().out == "the report\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "cron", "x", "61 * * * *"], "minute"),
        (["add", "cron", "x", "@daily", "--timezone", "Europe/Berln"], "did you mean 'Europe/Berlin'"),
        (["add", "cron", "x", "@daily", "a", "--exec", "b"], "give either PAYLOAD or --exec, not both"),
        (["add", "cron", "x", "@daily", "--grace", "5s"], "missed='skip'"),
        (["add", "cron", "", "@daily"], "schedule name must not be empty"),
        (["add", "cron", "x", "@daily", "--missed", "never"], "'never' is not one of"),
        (["run", "cron", ""], "schedule name must not be empty"),
        (["next", "cron", ""], "schedule name must not be empty"),
        (["list", "a{b"], "contains '{'"),
        (["list"], "give either QUEUE, or --all"),
        (["list", "cron", "--all"], "give either QUEUE, or --all"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(invoke: Invoke, words: list[str], said: str):
    result = invoke("cron", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert invoke("cron", "list", "cron", "--json").stdout == ""


def test_schedules_of_all_queues_are_listed_with_their_queue(invoke: Invoke, server: RedisServer):
    for queue in ("jobs", "reports"):
        invoke("cron", "add", queue, "nightly", "0 3 * * *")
    with Queue("emails", url=server.url) as emails:
        emails.send("payload")
    lines = invoke("cron", "list", "--all").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["queue", "name"], ["jobs", "nightly"], ["reports", "nightly"]]
    documents = [json.loads(line) for line in invoke("cron", "list", "--all", "--json").stdout.splitlines()]
    assert [(each["queue"], each["name"]) for each in documents] == [("jobs", "nightly"), ("reports", "nightly")]
    assert invoke("cron", "list", "emails").stderr == "queue emails has no schedule\n"


def test_payload_of_bytes_is_marked_as_base64(invoke: Invoke):
    invoke("cron", "add", "jobs", "report", "@daily", "--exec", "./report.sh")
    (known,) = [json.loads(line) for line in invoke("cron", "list", "jobs", "--json").stdout.splitlines()]
    assert "payload" not in known
    assert base64.b64decode(known["payload_base64"]) == b"./report.sh"


def test_schedule_that_no_consumer_has_taken_is_late(invoke: Invoke, server: RedisServer):
    invoke("cron", "add", "jobs", "tick", "every 1h")
    assert "late since" not in invoke("cron", "list", "jobs").stdout
    past = str(int(time.time() * 1000) - 7_200_000)
    with Queue("jobs", url=server.url, clock=lambda: past) as queue:
        queue.schedules.add("tock", "every 1h")
    assert invoke("cron", "list", "jobs").stdout.count("late since") == 1


def test_schedule_that_a_pause_or_a_limit_holds_back_is_due_but_not_late(invoke: Invoke, server: RedisServer):
    past = str(int(time.time() * 1000) - 7_200_000)
    with Queue("jobs", url=server.url, clock=lambda: past) as queue:
        queue.schedules.add("tock", "every 1h")
    invoke("pause", "jobs")
    paused = invoke("cron", "list", "jobs").stdout
    invoke("resume", "jobs")
    invoke("configure", "jobs", "--concurrency", "1")
    with Queue("jobs", url=server.url) as queue:
        queue.send("long", at=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        assert [each.payload for each in queue.receive(1)] == ["long"]
        full = invoke("cron", "list", "--all").stdout
    for listed in (paused, full):
        assert "late" not in listed
        assert "due since" in listed


def test_user_who_may_not_read_what_holds_a_queue_back_can_list_its_late_schedules(invoke: Invoke, server: RedisServer):
    past = str(int(time.time() * 1000) - 7_200_000)
    with Queue("jobs", url=server.url, clock=lambda: past) as queue:
        queue.schedules.add("tock", "every 1h")
    with server.client() as client:
        client.acl_setuser(
            "lister", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-zcard", "-zcount"]
        )
        try:
            url = server.url.replace("unix://", "unix://lister:x@")
            assert "late since" in invoke("cron", "list", "jobs", "--url", url).stdout
        finally:
            client.acl_deluser("lister")


def test_queue_of_schedules_alone_is_consumed(invoke: Invoke, tmp_path: Path):
    (tmp_path / "jobs.py").write_text(
        "from delayq import Queue\n"
        "jobs = Queue('jobs')\n"
        "@jobs.cron('every 1s')\n"
        "def pulse(message):\n"
        "    print('pulse')\n"
    )
    done = invoke("consume", "jobs:jobs", "--max-messages", "1")
    assert (done.exit_code, done.stdout) == (0, "pulse\n")


# -- load --------------------------------------------------------------------------------------------------------------

JOBS = """
[nightly]
when = "0 3 * * *"
timezone = "Europe/Berlin"
payload = { full = true }
timeout = "30m"

[report]
when = "every 90s"
missed = "skip"
grace = "10m"
exec = "./report.sh"
start = 2030-01-01T00:00:00+01:00
end = 2030-02-01T00:00:00+01:00
jitter = "20s"
"""


def test_loaded_schedules_are_those_of_the_file(invoke: Invoke, tmp_path: Path, server: RedisServer):
    invoke("cron", "add", "cron", "old", "@daily")
    invoke(
        "cron",
        "add",
        "cron",
        "nightly",
        "0 4 * * *",
        '{"full": true}',
        "--timezone",
        "Europe/Berlin",
        "--timeout",
        "1h",
    )
    (tmp_path / "jobs.toml").write_text(JOBS)
    expected = [
        "~ nightly: when '0 4 * * *' -> '0 3 * * *', timeout 3600.0 -> 1800.0",
        "+ report: every 90s (UTC)",
        "- old: @daily (UTC)",
    ]
    before = invoke("cron", "list", "cron", "--json").stdout
    assert invoke("cron", "load", "cron", "jobs.toml", "--dry-run").stdout.splitlines() == expected
    assert invoke("cron", "list", "cron", "--json").stdout == before
    assert invoke("cron", "load", "cron", "jobs.toml").stdout.splitlines() == expected
    assert invoke("cron", "load", "cron", "jobs.toml").stdout == "cron already matches jobs.toml: nothing changed\n"
    (tmp_path / "jobs.toml").write_text(JOBS, "utf-8-sig")  # as Windows Notepad and PowerShell write it
    assert invoke("cron", "load", "cron", "jobs.toml").stdout == "cron already matches jobs.toml: nothing changed\n"
    with Queue("cron", url=server.url) as queue:
        nightly, report = queue.schedules.list()
        assert (nightly.name, nightly.when, nightly.payload) == ("nightly", "0 3 * * *", {"full": True})
        assert (nightly.timeout, report.timeout) == (1800, None)
        assert (report.name, report.grace, report.payload) == ("report", 600, b"./report.sh")
        assert (str(report.start), str(report.end), report.jitter) == (
            "2029-12-31 23:00:00+00:00",
            "2030-01-31 23:00:00+00:00",
            20,
        )
        assert queue.stats().missing == 0


def test_schedules_of_functions_are_not_changed(invoke: Invoke, tmp_path: Path, server: RedisServer):
    with Queue("cron", url=server.url) as queue:
        queue.cron("@daily", name="own")(print)
        Consumer(queue).drain()
    (tmp_path / "jobs.toml").write_text("")
    assert invoke("cron", "load", "cron", "jobs.toml").stdout == "cron already matches jobs.toml: nothing changed\n"
    assert '"own"' in invoke("cron", "list", "cron", "--json").stdout


def test_unreadable_schedule_is_removed_if_it_is_not_in_the_file(
    invoke: Invoke, tmp_path: Path, server: RedisServer, redis_client: redis.Redis
):
    invoke("cron", "add", "cron", "old", "@daily")
    invoke("cron", "add", "cron", "broken", "@daily")
    invoke("cron", "add", "cron", "nightly", "@daily")
    for name in (b"broken", b"nightly", b"\xff", b"x" * 300):
        redis_client.hset("delayq:{cron}:schedules", name, b"junk")
    (tmp_path / "jobs.toml").write_text('[nightly]\nwhen = "@daily"\n[old]\nwhen = "@daily"\n')
    expected = [
        "+ nightly: @daily (UTC)",
        "- broken: cannot be read: another program or a newer delayq has written it",
    ]
    assert invoke("cron", "load", "cron", "jobs.toml", "--dry-run").stdout.splitlines() == expected
    assert invoke("cron", "load", "cron", "jobs.toml").stdout.splitlines() == expected
    assert invoke("cron", "load", "cron", "jobs.toml").stdout == "cron already matches jobs.toml: nothing changed\n"
    left: Any = redis_client.hkeys("delayq:{cron}:schedules")
    assert set(left) == {b"old", b"nightly", b"\xff", b"x" * 300}
    with Queue("cron", url=server.url) as queue:
        assert [each.name for each in queue.schedules.list()] == ["nightly", "old"]
        assert (queue.stats().pending, queue.stats().missing) == (2, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "jobs.toml"),
        ("[x]\n", "jobs.toml: [x]: when is missing: the fields are when, timezone, missed, grace, start, end, jitter,"),
        ("x = 5\n", "jobs.toml: [x]: 5 is not a table"),
        ("[x]\nwhen = 5\n", "jobs.toml: [x]: Expected `str`, got `int` - at `$.when`"),
        ('[x]\nwhen = "61 * * * *"\n', "[x]: schedule '61 * * * *'"),
        (
            '[x]\nwhen = "@daily"\nevery = 5\n',
            "jobs.toml: [x]: unknown field 'every': the fields are when, timezone, missed",
        ),
        ('[x]\nwhen = "@daily"\ngrace = "soon"\nmissed = "skip"\n', "'soon' is not a duration"),
        ('[x]\nwhen = "@daily"\npayload = 1\nexec = "a"\n', "give either payload or exec, not both"),
        ('[x]\nwhen = "@daily"\nend = 2030-01-01T00:00:00\n', "end=2030-01-01T00:00:00 is naive: add a time zone"),
        ('[x]\nwhen = "@daily"\n[x.headers]\na = [1]\n', "header 'a'"),
    ],
)
def test_bad_file_changes_nothing(invoke: Invoke, tmp_path: Path, text: str, said: str):
    invoke("cron", "add", "cron", "old", "@daily")
    before = invoke("cron", "list", "cron", "--json").stdout
    (tmp_path / "jobs.toml").write_text(f'[well]\nwhen = "@daily"\n{text}' if text.startswith("[x]") else text)
    result = invoke("cron", "load", "cron", "jobs.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert invoke("cron", "list", "cron", "--json").stdout == before
