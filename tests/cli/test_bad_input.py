"""Bad input gets one line on stderr that names it, and exit code 2, and stores nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import redis

from delayq import Queue
from tests.cli.conftest import Invoke, Run
from tests.conftest import StartServer

LONG = "q" * 129

BAD = [
    (["nope"], "No such command 'nope'"),
    (["snd", "emails", "x"], "No such command 'snd'. Did you mean 'send'?"),
    (["topic", "dead", "orders"], "No such command 'dead'. Did you mean 'delayq topic group dead'?"),
    (["dead", "pause", "emails"], "No such command 'pause'. Did you mean 'delayq pause'?"),
    (["requeue", "emails"], "No such command 'requeue'. Did you mean 'delayq dead requeue' or"),
    (["--", "-1"], "No such option"),  # click puts the name in quotes since 8.4
    (["send"], "Missing argument 'QUEUE'"),
    (["send", "emails"], "give PAYLOAD"),
    (["send", "emails", "hello", "--resume"], "--resume needs --file"),
    (["send", "emails", "hello", "--ttl", "5s"], "Did you mean '--expires-in'?"),
    (["send", "emails", "hello", "--countdown", "5"], "Did you mean '--delay'?"),
    (["peek", "emails", "--ttl", "5s"], "No such option"),
    (["send", "emails", "hello", "--delay", "-5s"], "'-5s' is not a duration"),
    (["send", "emails", "hello", "--delay", "-5"], "'-5' is not a duration"),
    (["send", "emails", "hello", "--delay", "nan"], "'nan' is not a duration"),
    (["send", "emails", "hello", "--delay", "9999999w"], "past the year 9999"),
    (["send", "emails", "hello", "--delay", "253402300799s"], "past the year 9999"),
    (["send", "emails", "hello", "--at", "2026-12-24T18:00"], "no time zone"),
    (["send", "emails", "hello", "--at", "tomorrow"], "'tomorrow' is not a date and time"),
    (["send", "emails", "hello", "--at", "1969-12-31T23:00Z"], "1970"),
    (
        ["send", "emails", "hello", "--at", "2026-12-24T18:00Z", "--delay", "1s"],
        "give either --delay or --at, not both",
    ),
    (["send", "emails", "hello", "--id", ""], "message id must not be empty"),
    (["send", "emails", "hello", "--id", "a\x1bb"], "control characters"),
    (["send", "emails", "hello", "--id", "i" * 257], "257 bytes"),
    (["send", "emails", "hello", "--max-retries", "-1"], "-1"),
    (["send", "emails", "hello", "--timeout", "0"], "'--timeout': '0' leaves a handler no time"),
    (
        ["send", "emails", "hello", "--timeout", "2d"],
        "'--timeout': '2d' is more than 1d: leave the option out for no limit",
    ),
    (["send", "emails", "hello", "--on-conflict", "merge"], "'merge' is not one of"),
    (["send", "emails", "hello", "--expires-in", "1s", "--delay", "2s"], "--expires-in 1.0 ends before the message"),
    (["send", "emails", "hello", "--header", "A"], "'A' is not NAME=VALUE"),
    (["send", "emails", "hello", "--header", "=A"], "'=A' is not NAME=VALUE"),
    (["send", "emails", "{", "--as", "json"], "the payload is not JSON"),
    (["send", "emails", "x" * 1024 * 1024], "at most 1,048,576 are allowed"),
    (["send", "emails", "hello", "--file", "messages.jsonl"], "leave out PAYLOAD and its options with --file"),
    (["send", "emails", "--file", "messages.jsonl", "--delay", "1s"], "leave out PAYLOAD and its options with --file"),
    (["send", "emails", "--file", "none.jsonl"], "'none.jsonl' does not exist"),
    (["send", "emails", "--file", "."], "is a directory"),
    (["send", "emails", "--file", "-", "--resume"], "stdin cannot"),
    (["send", "", "hello"], "queue name must not be empty"),
    (["send", LONG, "hello"], "129 bytes"),
    (["send", "a{b", "hello"], "'a{b' contains '{'"),
    (["send", "a\nb", "hello"], "control characters"),
    (["send", "emails", "hello", "--prefix", "a}b"], "prefix 'a}b' contains '}'"),
    (["send", "emails", "hello", "--url", "http://localhost"], "has an unknown scheme; expected one of redis://"),
    (["send", "emails", "hello", "--url", "redis://"], "redis://"),
    (["send", "emails", "hello", "--url", ""], "the URL is empty"),
    (["stats", "a{b"], "'a{b' contains '{'"),
    (["stats", "emails", "--window", "1h"], "--window and --bucket need --upcoming"),
    (["stats", "emails", "--upcoming", "--bucket", "1s"], "makes 3600 buckets, not 1 to 500"),
    (["stats", "--upcoming", "--bucket", "0"], "bucket 0.0 is not 0.001 seconds or more"),
    (["top", "a{b"], "'a{b' contains '{'"),
    (["top", "--interval", "0"], "--interval 0ms must be between 100ms and 1h"),
    (["top", "--window", "1d"], "makes 5760 buckets, not 1 to 500"),
    (["peek", "emails", "--state", "lost"], "'lost' is not one of"),
    (["peek", "emails", "--limit", "0"], "0"),
    (["cron", "add", "emails", "a", "@daily", "--jitter", "400d"], "'--jitter': '400d' is more than 366d"),
    (["cron", "add", "emails", "a", "@daily", "--start", "1969-12-31T00:00Z"], "'--start': '1969-12-31T00:00Z' is not"),
    (["cron", "add", "emails", "a", "@daily", "--end", "1969-12-31T00:00Z"], "'--end': '1969-12-31T00:00Z' is not"),
    (
        ["cron", "add", "a", "b", "@daily", "--start", "2031-01-01T00:00Z", "--end", "2030-01-01T00:00Z"],
        "before --start",
    ),
    (["show", "emails", ""], "message id must not be empty"),
    (["cancel", "emails", ""], "message id must not be empty"),
    (["reschedule", "emails", "order-1"], "give the new due time with --delay or --at"),
    (["reschedule", "emails", "order-1", "--delay", "x"], "'x' is not a duration"),
    (["purge", "emails"], "give --yes"),
    (["purge", "emails", "--yes", "--state", "unack"], "'unack' is not one of"),
    (["dead", "purge", "emails"], "give --yes"),
    (["dead", "purge", "emails", "--yes", "--older-than", "-1d"], "'-1d' is not a duration"),
    (["dead", "requeue", "emails"], "give either IDs, or --all"),
    (["dead", "requeue", "emails", "order-1", "--all"], "give either IDs, or --all"),
    (["dead", "requeue", "emails", ""], "message id must not be empty"),
    (["dead", "requeue", "emails", "--all", "--error", "x"], "give either IDs, or --all"),
    (["dead", "requeue", "emails", "order-1", "--reason", "x"], "give either IDs, or --all"),
    (["dead", "requeue", "emails", "--dry-run"], "give either IDs, or --all"),
    (["dead", "requeue", "emails", "order-1", "--dry-run"], "work with --all or filters"),
    (["dead", "requeue", "emails", "order-1", "--rate", "5"], "work with --all or filters"),
    (["dead", "requeue", "emails", "--older-than", "soon"], "'soon' is not a duration, such as 1h30m"),
    (["dead", "requeue", "emails", "--newer-than", "2026-12-24T18:00"], "or a time, such as"),
    (["dead", "requeue", "emails", "--error", ""], "error '' is not a non-empty string"),
    (
        ["dead", "requeue", "emails", "--error", "a", "--error-regex", "a"],
        "give either --error or --error-regex, not both",
    ),
    (["dead", "requeue", "emails", "--error-regex", "("], "'(' is not a regular expression"),
    (["dead", "requeue", "emails", "--header", "a"], "'a' is not NAME=VALUE"),
    (["dead", "requeue", "emails", "--all", "--rate", "0/s"], "'0/s' is not a number above 0"),
    (["dead", "requeue", "emails", "--all", "--rate", "fast"], "'fast' is not a number above 0"),
    (["dead", "edit", "emails", "", "--payload", "x"], "message id must not be empty"),
    (
        ["dead", "edit", "emails", "order-1", "--payload", "x", "--file", "messages.jsonl"],
        "give either --payload or --file, not both",
    ),
    (["dead", "edit", "emails", "order-1", "--file", "none.json"], "No such file"),
    (["consume"], "Missing argument 'TARGET[=WEIGHT]...'"),
    (["consume", "emails"], "'emails' is not MODULE:QUEUE"),
    (["consume", "emails:"], "'emails:' is not MODULE:QUEUE"),
    (["consume", "nowhere:emails"], "no module named 'nowhere'"),
    (["consume", "json:nothing"], "json:nothing does not exist: json has no queues"),
    (["consume", "json:dumps"], "json:dumps is of type function, not a Queue"),
    (["consume", "json:dumps", "--lease", "5s"], "--lease needs --exec"),
    (["consume", "json:dumps", "--prefix", "p"], "--prefix needs --exec"),
    (["consume", "emails", "--exec", "cat", "--concurrency", "0"], "0"),
    (["consume", "emails", "--exec", "cat", "--processes", "0"], "0"),
    (["consume", "emails", "--exec", "cat", "--lease", "2d"], "lease"),
    (["consume", "emails", "--exec", "cat", "--max-messages", "0"], "0"),
    (["consume", "a{b", "--exec", "cat"], "'a{b' contains '{'"),
]


def test_bad_input_is_named_in_one_line(invoke: Invoke, redis_client: redis.Redis, tmp_path: Path):
    (tmp_path / "messages.jsonl").write_text('{"payload": 1}\n')
    offenders = []
    for words, named in BAD:
        result = invoke(*words)
        is_named = result.stderr.startswith("delayq: ") and result.stderr.count("\n") == 1 and named in result.stderr
        if (result.exit_code, is_named, result.stdout, redis_client.dbsize()) != (2, True, "", 0):
            offenders.append((" ".join(words)[:60], result.exit_code, result.output))
    assert offenders == []


def test_bad_input_ends_a_real_process_in_the_same_way(delayq: Run, redis_client: redis.Redis):
    done = delayq("send", "emails", "hello", "--delay", "-5s")
    assert (done.returncode, done.stdout, redis_client.dbsize()) == (2, "", 0)
    assert done.stderr == (
        "delayq: Invalid value for '--delay': '-5s' is not a duration of 0 or more: "
        "write it as 500ms, 10s, 1h30m or 2d (see delayq send --help)\n"
    )


def test_url_in_the_environment_is_checked_like_the_option(invoke: Invoke):
    done = invoke("stats", env={"DELAYQ_URL": "nonsense"})
    assert done.exit_code == 2
    assert done.stderr.startswith("delayq: ")
    assert done.stderr.count("\n") == 1


def test_server_that_does_not_answer_fails_in_one_line(invoke: Invoke, tmp_path: Path):
    result = invoke("stats", "--url", f"unix://{tmp_path}/nobody")
    assert result.exit_code == 1
    assert result.stderr.startswith("delayq: ")
    assert result.stderr.count("\n") == 1


def test_queue_of_a_newer_format_is_refused(invoke: Invoke, queue: Queue, redis_client: redis.Redis):
    queue.send("hello")
    redis_client.hset("delayq:{emails}:meta", "format", 99)
    before = sorted(redis_client.keys())
    for words in (["send", "emails", "again"], ["stats", "emails"], ["purge", "emails", "--yes"]):
        result = invoke(*words)
        assert result.exit_code == 2
        assert "newer" in result.stderr
        assert result.stderr.count("\n") == 1
    assert sorted(redis_client.keys()) == before


def test_password_is_never_shown(invoke: Invoke, start_server: StartServer):
    server = start_server(port=True, config={"requirepass": "s3cret/%?", "save": "3600 1"})
    right = f"redis://:s3cret%2F%25%3F@127.0.0.1:{server.port}"
    wrong = f"redis://:wr0ng-w0rd@127.0.0.1:{server.port}"
    accepted = invoke("send", "emails", "hello", "--url", right)
    assert accepted.exit_code == 0
    outputs = [accepted]
    for words in (["stats"], ["send", "emails", "hello"], ["consume", "emails", "--exec", "cat", "--burst"]):
        refused = invoke(*words, "--url", wrong)
        assert refused.exit_code == 2, refused.stderr
        assert refused.stderr.count("\n") == 1
        outputs.append(refused)
    outputs += [
        invoke("stats", "--url", right.replace("redis://", "redi://")),
        invoke("stats", "--url", right.replace(f":{server.port}", ":99999")),
        invoke("stats", "--url", f"{right}/x"),
        invoke("stats", "--url", right.replace(str(server.port), "1")),
        invoke("doctor", "--url", right),
        invoke("consume", "emails", "--exec", "cat", "--burst", "--url", right, "--log-format", "json"),
    ]
    said = "".join(done.stdout + done.stderr for done in outputs)
    assert not any(secret in said for secret in ("s3cret", "wr0ng-w0rd"))


@pytest.mark.parametrize("words", ["stats", "send emails hello", "exporter --once", "dashboard"])
def test_empty_url_in_the_environment_does_not_mean_the_embedded_store(words: str, invoke: Invoke, tmp_path: Path):
    done = invoke(*words.split(), env={"DELAYQ_URL": ""})
    assert done.exit_code == 2
    assert done.stderr.startswith("delayq: DELAYQ_URL is empty: set it to a URL, or unset it")
    assert not (tmp_path / "store").exists()


READERS = """
stats; peek emails; show emails order-42; why emails order-42; doctor; dead list emails; cron list emails; top --once
queue list; consumers; topic list
topic groups orders; topic read orders; cancel emails order-42; resume emails; purge emails --yes
"""


@pytest.mark.parametrize("words", [each for each in READERS.replace("\n", ";").split(";") if each.strip()])
def test_command_that_only_reads_creates_no_store(words: str, invoke: Invoke, tmp_path: Path):
    done = invoke(*words.split(), env={"DELAYQ_URL": None})
    assert done.exit_code == 1
    assert f"no store in {tmp_path / 'store'}, and DELAYQ_URL is not set: run this in" in done.stderr
    assert not (tmp_path / "store").exists()


def test_existing_store_is_read(invoke: Invoke, tmp_path: Path):
    url = f"embedded://{tmp_path / 'other'}"
    assert f"no store in {tmp_path / 'other'}: run this in" in invoke("stats", "--url", url).stderr
    assert invoke("send", "emails", "hello", "--url", url).exit_code == 0
    assert json.loads(invoke("stats", "emails", "--json", "--url", url).stdout)["sent"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize("words", ["peek emails --json", "peek emails"])
def test_full_disk_is_reported_in_one_line(words: str, delayq: Run, queue: Queue):
    queue.send("payload", delay=60)
    with Path("/dev/full").open("w") as full:
        done = delayq(*words.split(), stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert (done.returncode, done.stderr) == (1, "delayq: cannot write the output: No space left on device\n")
