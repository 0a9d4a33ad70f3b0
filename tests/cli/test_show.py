"""stats, peek, show and dead: what they print for people, and for programs."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from delayq.cli import show
from delayq.cli.stats import LEFT

from delayq import Consumer, Outgoing, Queue, Reject
from delayq.model.placement import DELIVERABLE, STATES
from delayq.types import QueueStats
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def fail(queue: Queue, id_: str, reason: str | None = None, error: str = "it broke") -> None:
    """Deliver a message and let the delivery fail; with a reason, the message dies."""
    queue.send("payload", id=id_, max_retries=1)
    (message,) = queue.receive()
    if reason is None:
        message.nack(delay=3600, error=error)
    else:
        message.reject(reason, error=error)


def test_stats_of_all_queues_are_one_line_each(invoke: Invoke, server: RedisServer):
    for name, count in (("emails", 2), ("orders", 1)):
        with Queue(name, url=server.url) as queue:
            for number in range(count):
                queue.send(number, delay=3600)
    with Queue("orders", url=server.url) as orders:
        orders.pause()
    lines = invoke("stats").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["queue", "scheduled"], ["emails", "2"], ["orders", "1"]]
    assert "next due" in lines[1]
    assert lines[2].endswith("paused")
    documents = [json.loads(line) for line in invoke("stats", "--json").stdout.splitlines()]
    assert [(each["queue"], each["pending"]) for each in documents] == [("emails", 2), ("orders", 1)]


def test_group_is_shown_with_what_is_left_of_it(invoke: Invoke, server: RedisServer):
    with Queue("jobs", url=server.url) as queue:
        sent = queue.send_group([Outgoing(1, id="m"), Outgoing(2)], Outgoing("then", id="t"), id="team")
        shown = dict(line.split(maxsplit=1) for line in invoke("show", "jobs", "--group", "team").stdout.splitlines())
        assert (shown["state"], shown["members"], shown["left"], shown["then"]) == ("running", "2", "2", "t")
        assert json.loads(invoke("show", "jobs", "--group", "team", "--json").stdout)["left"] == len(sent.sents)
        assert re.search("member of group +team", invoke("show", "jobs", "m").stdout)
        assert re.search("after group +team", invoke("show", "jobs", "t").stdout)
        assert "waits for group team: 2 of 2 members have not ended" in invoke("why", "jobs", "t").stdout
    unknown, nothing = invoke("show", "jobs", "--group", "other"), invoke("show", "jobs")
    assert (unknown.exit_code, nothing.exit_code) == (1, 2)
    assert "has no group 'other'" in unknown.stderr
    assert "give the ID of a message, or --group ID" in nothing.stderr


def test_shards_of_a_queue_are_not_listed_as_queues(invoke: Invoke, server: RedisServer):
    with Queue("wide", url=server.url, shards=3) as wide:
        wide.send("hello")
        wide.pause()
    documents = [json.loads(line) for line in invoke("stats", "--json").stdout.splitlines()]
    assert [each["queue"] for each in documents] == ["wide"]


def test_prefix_with_pattern_characters_finds_only_its_own_queues(invoke: Invoke, server: RedisServer):
    for prefix in ("a*", "ab", "[a]", "a"):
        with Queue(f"of-{prefix}", url=server.url, prefix=prefix) as queue:
            queue.send("hello")
    for prefix in ("a*", "[a]", "a"):
        documents = [json.loads(line) for line in invoke("stats", "--json", "--prefix", prefix).stdout.splitlines()]
        assert [each["queue"] for each in documents] == [f"of-{prefix}"]


def test_stats_of_one_queue_show_every_count_and_the_balance(invoke: Invoke, queue: Queue):
    fail(queue, "tried")
    fail(queue, "dead", reason="bad address")
    queue.send("payload", id="gone")
    queue.cancel("gone")
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in invoke("stats", "emails").stdout.splitlines())
    assert shown["balance"] == "3 sent = 0 acked + 1 cancelled + 0 expired + 0 purged + 2 inside"
    assert (shown["retrying"], shown["dead"], shown["nacked"], shown["delivered"]) == ("1", "1", "1", "2")
    assert shown["in Redis"] == "0 pending, 0 ready, 0 unack, 1 retry, 1 dead, 1 garbage"
    assert "50% under" in shown["lateness"]
    document = json.loads(invoke("stats", "emails", "--json").stdout)
    assert set(document) == {*QueueStats.__struct_fields__, "running", "inside", "missing"}
    others = {"at", "oldest_due_at", "handler_time", "next_due_at", "paused_since", "paused_until", "held_back"}
    others |= {"slots_missed", "tasks"}
    assert {*shown} | {*STATES, *LEFT, "sent", "inside", "missing"} | others >= set(document)


def test_stats_show_how_long_handlers_ran_and_since_when_the_oldest_is_due(invoke: Invoke, queue: Queue):
    queue.send("x")
    shown = invoke("stats", "emails").stdout
    assert re.search(r"^overdue since +\S+ ago \(\S+ \S+\)$", shown, re.MULTILINE)
    assert "handler time" not in shown
    Consumer(queue, lambda _: None).drain()
    shown = invoke("stats", "emails").stdout
    assert re.search(r"^handler time +50% under \S+, 99% under \S+, 100% under \S+$", shown, re.MULTILINE)
    assert "overdue since" not in shown
    document = json.loads(invoke("stats", "emails", "--json").stdout)
    assert sum(document["handler_time"].values()) == 1
    assert document["oldest_due_at"] is None


def test_stats_show_messages_held_back_by_their_key(invoke: Invoke, queue: Queue):
    queue.send("x")
    assert "held_back" not in invoke("stats", "emails").stdout
    queue._executor.client.hincrby(queue._context.shards[0].keys.stats, "held_back", 7)
    assert re.search(r"^held_back +7$", invoke("stats", "emails").stdout, re.MULTILINE)


def test_stats_of_an_unknown_queue_say_so(invoke: Invoke):
    result = invoke("stats", "emials")
    assert result.exit_code == 0
    assert result.stderr == "nothing was ever sent to queue emials\n"
    assert invoke("stats").stderr == "no queues\n"


def test_missing_messages_are_shown_in_capitals(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("payload", delay=3600)
    redis_client.delete("delayq:{emails}:pending")
    assert "1 MISSING: run delayq doctor emails" in invoke("stats", "emails").stdout


def test_peek_lists_a_state_the_earliest_due_first(invoke: Invoke, queue: Queue):
    for number, delay in enumerate((30, 10, 20)):
        queue.send({"n": number}, delay=delay, id=f"m{number}")
    lines = invoke("peek", "emails").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "m1", "m2", "m0"]
    assert '{"n":1}' in lines[1]
    documents = [json.loads(line) for line in invoke("peek", "emails", "--limit", "2", "--json").stdout.splitlines()]
    assert [(each["id"], each["payload"]) for each in documents] == [("m1", {"n": 1}), ("m2", {"n": 2})]
    assert invoke("peek", "emails", "--state", "dead").stderr == "no dead messages\n"


def test_peek_and_show_print_the_phase_of_a_message(invoke: Invoke, queue: Queue):
    fail(queue, "tried")
    queue.send("payload", id="runs")
    queue.receive()
    queue.send("payload", delay=7200, id="later")
    queue.send("payload", id="now")

    def listed(*words: str) -> list[tuple[str, str]]:
        lines = invoke("peek", "emails", "--json", *words).stdout.splitlines()
        return [(each["id"], each["phase"]) for each in map(json.loads, lines)]

    assert listed() == [("now", "due"), ("tried", "retrying"), ("later", "scheduled")]
    assert listed("--state", "scheduled") == [("later", "scheduled")]
    assert listed("--state", "due") == [("now", "due")]
    assert listed("--state", "running") == listed("--state", "unack") == [("runs", "running")]
    assert listed("--state", "retrying") == [("tried", "retrying")]
    assert listed("--state", "pending") == [("now", "due"), ("later", "scheduled")]
    shown = [line.split()[:2] for line in invoke("peek", "emails").stdout.splitlines()]
    assert shown == [["id", "state"], ["now", "due"], ["tried", "retrying"], ["later", "scheduled"]]
    assert re.search(r"^state +running \(unack in Redis\)$", invoke("show", "emails", "runs").stdout, re.MULTILINE)
    assert "is not dead but scheduled" in invoke("dead", "show", "emails", "later").stderr


def test_due_messages_are_found_in_each_structure(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("payload", delay=0.001, id=f"m{number}") for number in range(3)])
    assert eventually(lambda: queue.stats().due == 3)
    (message,) = queue.receive(1)  # the others move to ready
    message.nack(delay=0)
    queue.send("payload", id="new")
    queue.send("payload", id="later", delay=3600)
    assert {state: getattr(queue.stats(), state) for state in DELIVERABLE} == {"pending": 2, "ready": 2, "retry": 1}
    due = [json.loads(line) for line in invoke("peek", "emails", "--state", "due", "--json").stdout.splitlines()]
    assert sorted(each["id"] for each in due) == ["m0", "m1", "m2", "new"]
    assert invoke("peek", "emails", "--state", "due", "--limit", "2").stderr.startswith("2 of 4 messages shown")


def test_times_are_relative_and_long_adds_dates(invoke: Invoke, queue: Queue):
    queue.send("payload", delay=3600, id="later")
    assert re.search(r"later +scheduled +in (1h|59m \S+) +.payload", invoke("peek", "emails").stdout)
    assert re.search(r"in \S+ ?\S* \(20\d\d-\d\d-\d\d ", invoke("peek", "emails", "--long").stdout)


def test_list_fits_a_terminal_of_80_columns(invoke: Invoke, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.cli.output._width", lambda: 80)
    for number in range(3):
        queue.send({"text": "x" * 100}, delay=3600 * number, id=f"0000000000-{number}")
    lines = invoke("peek", "emails").stdout.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert all(line.endswith("…") for line in lines[1:])


@pytest.mark.parametrize(("command", "state"), [(["peek"], "pending"), (["dead", "list"], "dead")])
def test_cut_list_says_so_and_json_is_complete(
    command: list[str], state: str, invoke: Invoke, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(show, "PAGE", 4)
    for number in range(11):
        queue.send("payload", id=f"m{number:02}", delay=0 if state == "dead" else 3600)
    for message in queue.receive(20) if state == "dead" else []:
        message.reject("bad")
    shown = invoke(*command, "emails")
    assert len(shown.stdout.splitlines()) == 1 + 10
    assert shown.stderr == "10 of 11 messages shown; --limit N shows more, --json shows all\n"
    whole = invoke(*command, "emails", "--json")
    assert sorted(json.loads(line)["id"] for line in whole.stdout.splitlines()) == [f"m{n:02}" for n in range(11)]
    assert (whole.stderr, invoke(*command, "emails", "--limit", "11").stderr) == ("", "")
    some = invoke(*command, "emails", "--json", "--limit", "2")
    assert (len(some.stdout.splitlines()), some.stderr.split(" messages")[0]) == (2, "2 of 11")
    assert invoke("peek", "emails", "--state", "garbage", "--json").exit_code == 0


def test_long_payload_is_cut_in_a_list_and_complete_in_show(invoke: Invoke, queue: Queue):
    queue.send("x" * 300, delay=60, id="long")
    assert invoke("peek", "emails").stdout.splitlines()[1].endswith("xxx…")
    assert "x" * 300 in invoke("show", "emails", "long").stdout


def test_long_ids_are_not_cut_in_a_pipe(invoke: Invoke, queue: Queue):
    queue.send("payload", delay=60, id="i" * 256)
    assert "i" * 256 in invoke("peek", "emails").stdout


def test_show_prints_everything_about_a_message(invoke: Invoke, queue: Queue):
    queue.send({"to": "a"}, delay=60, id="order-42", headers={"kind": "x"}, max_retries=5, expires_in=3600, timeout=90)
    shown = invoke("show", "emails", "order-42").stdout.splitlines()
    assert [line.split("  ")[0].strip() for line in shown] == [
        *(
            "id",
            "queue",
            "state",
            "due",
            "created",
            "expires",
            "attempts",
            "max retries",
            "timeout",
            "header kind",
            "payload",
        )
    ]
    assert shown[8].split() == ["timeout", "1m", "30s"]
    assert shown[-1].endswith('{"to":"a"} (10 bytes)')
    document = json.loads(invoke("show", "emails", "order-42", "--json").stdout)
    assert (document["id"], document["state"], document["headers"], document["payload"], document["timeout"]) == (
        *("order-42", "pending", {"kind": "x"}),
        *({"to": "a"}, 90),
    )


def test_running_message_is_shown_with_its_lease(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    queue.receive(lease=60)
    queue.cancel("order-42")
    shown = invoke("show", "emails", "order-42").stdout
    assert "lease until" in shown
    assert "running (unack in Redis), and will not be retried" in shown


@pytest.mark.parametrize("command", ["show", "dead show"])
def test_unknown_message_is_exit_code_1(command: str, invoke: Invoke):
    result = invoke(*command.split(), "emails", "nobody")
    assert result.exit_code == 1
    assert result.stderr == "delayq: queue emails has no message 'nobody'\n"
    assert result.stdout == ""


def test_bytes_are_shown_escaped_and_are_base64_in_json(invoke: Invoke, queue: Queue):
    body = b"\x00\xff\x1b[2J"
    queue.send(body, delay=60, id="bytes", headers={"raw": b"\xfe"})
    assert "\\x00\\xff\\x1b[2J (6 bytes)" in invoke("show", "emails", "bytes").stdout
    document = json.loads(invoke("show", "emails", "bytes", "--json").stdout)
    assert base64.b64decode(document["payload_base64"]) == body
    assert "payload" not in document
    assert base64.b64decode(document["headers"]["raw"]) == b"\xfe"


def test_messages_cannot_control_the_terminal(invoke: Invoke, queue: Queue):
    attack = "\x1b]0;owned\x07\r\u202e"
    fail(queue, "evil", reason=f"reason {attack}", error=f"error {attack}")
    queue.send(attack, delay=60, id="evil-2", headers={f"name{attack}": attack})
    for words in (["dead", "list"], ["dead", "show", "evil"], ["peek"], ["show", "evil-2"]):
        shown = invoke(words[0], *words[1:2][: words[0] == "dead"], "emails", *words[1 + (words[0] == "dead") :]).stdout
        assert "owned" in shown
        assert not set(shown) & set("\x1b\x07\r\u202e")


def test_markup_in_a_payload_is_shown_literally(invoke: Invoke, queue: Queue):
    queue.send("[bold]x[/bold] :smile:", delay=60)
    assert "[bold]x[/bold] :smile:" in invoke("peek", "emails").stdout


def test_dead_letters_are_listed_with_their_reason(invoke: Invoke, queue: Queue):
    fail(queue, "order-1", reason="bad address", error="550 unknown user")
    line = invoke("dead", "list", "emails").stdout.splitlines()[1]
    assert line.startswith("order-1")
    assert "bad address: 550 unknown user" in line
    (letter,) = [json.loads(line) for line in invoke("dead", "list", "emails", "--json").stdout.splitlines()]
    assert (letter["reason"], letter["error"], letter["attempts"]) == ("bad address", "550 unknown user", 1)
    assert json.loads(invoke("dead", "show", "emails", "order-1", "--json").stdout) == letter


def test_dead_show_refuses_a_living_message(invoke: Invoke, queue: Queue):
    queue.send("payload", delay=60, id="alive")
    result = invoke("dead", "show", "emails", "alive")
    assert result.exit_code == 1
    assert result.stderr == "delayq: message 'alive' is not dead but scheduled\n"


def test_missing_payload_is_shown_as_gone(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("payload", delay=60, id="gone")
    redis_client.delete("delayq:{emails}:msg:gone")
    assert "gone or unreadable" in invoke("show", "emails", "gone").stdout
    assert invoke("peek", "emails").exit_code == 0
    assert "payload" not in json.loads(invoke("show", "emails", "gone", "--json").stdout)


def test_time_in_json_is_machine_readable(invoke: Invoke, queue: Queue):
    sent = queue.send("payload", delay=60, id="order-1")
    text = invoke("show", "emails", "order-1", "--json").stdout
    assert json.loads(text)["due_at"].endswith("Z")
    assert sent.due_at.isoformat().startswith(json.loads(text)["due_at"].removesuffix("Z"))


def test_reject_reason_is_not_repeated_as_the_error(invoke: Invoke, queue: Queue):
    fail(queue, "order-1", reason="bad address", error=f"{Reject.__name__}: bad address")
    assert invoke("dead", "list", "emails").stdout.splitlines()[1].count("bad address") == 1


def test_ids_that_look_the_same_are_listed_separately_and_json_is_exact(invoke: Invoke, queue: Queue):
    wanted = {"a\u202eb": r"a\u202eb", "a\u3164b": r"a\u3164b", "\u200b": r"\u200b", "\U0001f469\u200d\U0001f4bb": None}
    queue.send_many([Outgoing("x", id=each, delay=3600) for each in wanted])
    listed = {line.split()[0] for line in invoke("peek", "emails").stdout.splitlines()[1:]}
    assert listed == {shown or each for each, shown in wanted.items()}
    documents = [json.loads(line) for line in invoke("peek", "emails", "--json").stdout.splitlines()]
    assert {each["id"] for each in documents} == set(wanted)
