"""The rights that docs/acl.md lists are sufficient for each role, all needed, and everything else is refused."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from delayq.cli.send.file import send_file
from msgspec.structs import replace
from structlog.testing import capture_logs

from delayq import Consumer, Outgoing, Queue, doctor
from delayq.errors import LoginRefused, ServerError
from delayq.operations import outbox, send
from delayq.operations.limit_use import KeyUse, limit_use
from delayq.operations.queue_context import QueueContext
from tests.cli import conftest
from tests.cli.conftest import Invoke
from tests.faults import test_acl_spark, test_acl_topics
from tests.harness import bookkeeping
from tests.harness.acl import telling
from tests.harness.acl.roles import STORIES, Story
from tests.harness.acl.telling import (
    LINES,
    ON_OCCASION,
    as_root,
    as_user,
    assert_whole,
    contents,
    forget_scripts,
    grant,
    tell,
)
from tests.harness.hostile import refusal
from tests.harness.servers import RedisServer
from tests.harness.tree import LUA
from tests.harness.waiting import eventually

environment, invoke, server = conftest.environment, conftest.invoke, conftest.server

OWN = {
    "producer": ("sends", "corrects", "lasts"),
    "consumer": ("receives", "keeps_limits", "recovers", "recurs", "idles", "lasts"),
    "observer": ("observes", "examines", "lasts"),
    "administrator": ("manages", "corrects", "repairs", "observes", "examines", "lasts"),
    "scheduler": ("schedules", "lasts"),
    "relay": ("relays", "lasts"),
}
EXTRAS = {"`wait_replicas`": "confirms", "`delayq send --file`": "sends_a_file"}

each_role = pytest.mark.parametrize("role", OWN)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for missing replicas."""
    monkeypatch.setattr(send, "REPLICA_TIMEOUT_MS", 1)


def test_docs_have_a_line_for_each_role() -> None:
    assert set(LINES) == {*OWN, *test_acl_topics.OWN, *test_acl_spark.OWN, "finder"}
    assert all(LINES[role][:4] == ["reset", "on", ">secret", "~delayq:{emails}:*"] for role in OWN)
    assert set(EXTRAS) < set(ON_OCCASION)


@each_role
def test_role_can_do_everything_it_should(role: str, any_server: RedisServer) -> None:
    for story in OWN[role]:
        assert tell(any_server, role, LINES[role], STORIES[story]) == "", story


@pytest.mark.parametrize("extra", EXTRAS)
def test_producer_can_do_more_with_the_optional_rights(extra: str, any_server: RedisServer) -> None:
    story, added = STORIES[EXTRAS[extra]], ON_OCCASION[extra].split()
    assert tell(any_server, "producer", [*LINES["producer"], *added], story) == ""
    for right in added:
        others = [each for each in added if each != right]
        report = tell(any_server, "producer", [*LINES["producer"], *others], story)
        assert re.search(rf"\b{right.removeprefix('+')}\b", report, re.IGNORECASE), right


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("right", ["+multi", "+exec", "+expire"])
def test_send_file_without_a_right_leaves_no_connection_open(
    right: str, any_server: RedisServer, tmp_path: Path
) -> None:
    path = tmp_path / "emails.jsonl"
    path.write_text('{"payload": 1}\n')
    added = [each for each in ON_OCCASION["`delayq send --file`"].split() if each != right]
    grant(any_server, "producer", *added)
    with as_user(any_server, "producer") as mine, pytest.raises(ServerError):
        send_file(mine, path, resume=False, as_json=False)
    with any_server.client() as admin:
        opened = admin.info("stats")["total_connections_received"]
        gc.collect()  # anything that still holds one would reopen it
        assert admin.info("stats")["total_connections_received"] == opened


SCRIPTS = {
    "producer": "send send_one send_unique send_group replace get cancel reschedule configure",
    "consumer": "progress fitting give_up_place pending_to_ready ready_to_unack unack_to_retry ack nack extend release"
    " reject expire delete_payloads plan_sleep poll_idle ring stats purge enqueue_occurrence configure heartbeat"
    " deregister sample",
    "observer": "fitting get stats upcoming consumers",
    "administrator": "fitting get stats upcoming consumers pause resume purge delete_payloads requeue edit bury cancel"
    " reschedule repair reconcile_stats unack_to_retry configure remove_queue",
    "scheduler": "enqueue_occurrence send",
    "relay": "send send_unique",
}


@each_role
def test_role_can_run_every_command_of_its_scripts(role: str) -> None:
    texts = [(LUA / f"{name}.lua").read_text() for name in SCRIPTS[role].split()]
    commands = {f"+{name.lower()}" for text in texts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert commands - set(LINES[role]) == set()


@pytest.mark.full
@each_role
def test_role_needs_each_of_its_rights(role: str, any_server: RedisServer) -> None:
    needless = []
    for right in LINES[role][3:]:
        rights = [each for each in LINES[role] if each != right]
        if not any(tell(any_server, role, rights, STORIES[story]) for story in OWN[role]):
            needless.append(right)
    assert needless == []


REFUSAL = re.compile(r"grant this user .*docs/acl\.md")
REFUSED: dict[str, dict[str, Any]] = {
    "producer": {
        "receive": lambda queue: queue.receive(),
        "stats": lambda queue: queue.stats(),
        "pause": lambda queue: queue.pause(),
        "purge": lambda queue: queue.purge(),
        "requeue-all": lambda queue: queue.dead.requeue(),
        "upcoming": lambda queue: queue.upcoming(),
    },
    "relay": {
        "receive": lambda queue: queue.receive(),
        "stats": lambda queue: queue.stats(),
        "pause": lambda queue: queue.pause(),
        "purge": lambda queue: queue.purge(),
        "requeue-all": lambda queue: queue.dead.requeue(),
    },
    "consumer": {
        "send": lambda queue: queue.send("x", id="new"),
        "pause": lambda queue: queue.pause(),
        "cancel-in-flight": lambda queue: queue.cancel("held"),
    },
    "scheduler": {
        "receive": lambda queue: queue.receive(),
        "pause": lambda queue: queue.pause(),
        "purge": lambda queue: queue.purge(),
    },
    "observer": {
        "send": lambda queue: queue.send("x", id="new"),
        "replace": lambda queue: queue.send("x", id="waiting", on_conflict="replace"),
        "receive": lambda queue: queue.receive(),
        "cancel": lambda queue: queue.cancel("waiting"),
        "reschedule": lambda queue: queue.reschedule("waiting", delay=1),
        "now": lambda queue: queue.now("waiting"),
        "pause": lambda queue: queue.pause(),
        "purge": lambda queue: queue.purge(),
        "requeue": lambda queue: queue.dead.requeue("dead"),
        "redrive": lambda queue: queue.dead.redrive(),
        "edit": lambda queue: queue.dead.edit("dead", "x"),
    },
    "administrator": {
        "send": lambda queue: queue.send("x", id="new"),
        "receive": lambda queue: queue.receive(),
    },
}


@each_role
def test_role_is_refused_everything_else_and_changes_nothing(role: str, any_server: RedisServer) -> None:
    prepare(any_server)
    grant(any_server, role)
    before = contents(any_server)
    for name, call in REFUSED[role].items():
        with as_user(any_server, role) as mine:
            assert REFUSAL.search(refusal(partial(call, mine), LoginRefused)), name
        assert contents(any_server) == before, name


def prepare(server: RedisServer) -> None:
    """A queue with a pending, a due, an unacked and a dead message."""
    with as_root(server) as root:
        for name in ("dead", "held"):
            root.send("x", id=name)
        messages = {message.id: message for message in root.receive()}
        messages["dead"].reject("unwanted")
        root.send("x", id="waiting", delay=60)
        root.send("x", id="due")
        root.stats()


NEIGHBOURS = ["email", "emails2", "emails:", "emails:pending", "*", "?mails", "EMAILS", "emails\u200b"]


@each_role
def test_queue_of_another_name_is_out_of_reach(role: str, any_server: RedisServer) -> None:
    for name in NEIGHBOURS:
        with as_root(any_server, name) as root:
            root.send("x", id="waiting", delay=60)
    grant(any_server, role)
    before = contents(any_server)
    for name in NEIGHBOURS:
        with as_user(any_server, role, name) as mine:
            for call in (mine.send, mine.get, mine.cancel):
                assert "grant this user the keys of the queue" in refusal(partial(call, "waiting"), LoginRefused), name
        assert contents(any_server) == before, name


SHARDED: dict[str, Callable[[Queue, str], Any]] = {
    "producer": lambda queue, message_id: queue.cancel(message_id),
    "consumer": lambda queue, _: telling.act(queue, *(scripts.unack_to_retry() for scripts in queue._context.shards)),
    "observer": lambda queue, message_id: queue.get(message_id),
    "administrator": lambda queue, message_id: queue.get(message_id),
    "scheduler": lambda queue, message_id: telling.act(queue, queue._context.shard(message_id).armed_page(10, 0)),
    "relay": lambda queue, message_id: queue.execute(outbox.ping, [message_id]),
}


@each_role
def test_shards_need_the_additional_key_pattern(role: str, any_server: RedisServer) -> None:
    ids = [f"m{n}" for n in range(20)]
    with as_root(any_server, shards=4) as root:
        root.send_many([Outgoing("x", id=each, delay=60) for each in ids])

    def touch_all() -> None:
        with as_user(any_server, role, shards=4) as mine:
            mine.execute(QueueContext.opened)
            for each in ids:
                SHARDED[role](mine, each)

    grant(any_server, role)
    with pytest.raises(LoginRefused, match="keys of the queue"):
        touch_all()
    grant(any_server, role, ON_OCCASION["a queue with shards"])
    touch_all()


def test_pattern_for_all_queues_gives_access_to_all(any_server: RedisServer) -> None:
    pattern = ON_OCCASION["all queues"]
    with any_server.client() as admin:
        line = [pattern if word.startswith("~") else word for word in LINES["producer"]]
        admin.execute_command("ACL", "SETUSER", "producer", *line)
        for name in ("emails", *NEIGHBOURS):
            with as_user(any_server, "producer", name) as mine:
                assert mine.send("x").created
        admin.set("other:{emails}:pending", "x")
    with any_server.client(username="producer", password="secret") as user, pytest.raises(redis.ResponseError):
        user.get("other:{emails}:pending")


@pytest.mark.parametrize(
    ("right", "named"),
    [("+evalsha", r"grant this user \+evalsha;"), ("~delayq:{emails}:*", r"the keys of the queue, such as ~delayq:")],
)
def test_missing_right_is_named(right: str, named: str, any_server: RedisServer) -> None:
    with any_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "producer", *[each for each in LINES["producer"] if each != right])
    with as_user(any_server, "producer") as mine, pytest.raises(LoginRefused, match=named):
        mine.send("x")


def test_missing_right_within_a_script_is_named_if_the_server_says_it(any_server: RedisServer) -> None:
    with any_server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "producer", *[each for each in LINES["producer"] if each != "+mset"])
    with as_user(any_server, "producer") as mine, pytest.raises(LoginRefused) as caught:
        mine.send("x")
    named = r"\+mset" if any_server.version >= "8" else "the command that ACL LOG shows"
    assert re.search(rf"grant this user {named}; docs/acl\.md", str(caught.value))
    assert "user_script" not in str(caught.value)


@pytest.mark.parametrize(
    ("lacking", "options"),
    [("+zrangestore", {}), ("+zlexcount", {"concurrency_key": lambda _: "k", "concurrency_per_key": 1})],
)
def test_consumer_reports_a_missing_right_and_continues_once_it_is_granted(
    lacking: str, options: dict[str, Any], any_server: RedisServer
) -> None:
    rights = ON_OCCASION["a consumer of a queue with `concurrency_key`"].split()
    grant(any_server, "consumer", *rights, f"-{lacking[1:]}")
    with as_root(any_server) as root:
        root.send("x")
    with as_user(any_server, "consumer", **options) as mine, capture_logs() as lines:
        consumer = Consumer(mine, lambda _: None)
        thread = threading.Thread(target=consumer.run, kwargs={"max_messages": 1}, daemon=True)
        thread.start()
        assert eventually(lambda: any("redis refused" in line["event"] for line in lines))
        grant(any_server, "consumer", *rights)
        thread.join(120)
        assert consumer.handled == 1
    logged = [line for line in lines if line["event"].startswith("redis")]
    assert [line["event"] for line in logged] == [
        "redis refused, retrying",
        "redis accepts again",
    ]
    assert "grant this user" in logged[0]["error"]


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(each, marks=() if each in ("+zrem", "+zscore") else pytest.mark.full)
        for each in LINES["consumer"]
        if each.startswith("+") and "|" not in each
    ],
)
def test_drain_ends_with_the_error_if_a_right_is_missing(right: str, server: RedisServer) -> None:
    grant(server, "consumer", f"-{right[1:]}")
    with as_root(server) as root:
        root.send("x")
        with as_user(server, "consumer") as mine:
            try:
                Consumer(mine, lambda _: None, shutdown_timeout=0.1).drain()
            except LoginRefused as error:
                text = str(error)
            else:
                text = ""
        assert "grant this user" in text or root.stats().acked == 1  # some rights are not needed here


def is_whole(root: Queue) -> bool:
    return doctor.examine(root).healthy


SENDING: dict[str, Callable[[Queue], Any]] = {
    "one": lambda queue: queue.send("x", id="a").created,
    "many": lambda queue: queue.send_many([Outgoing("x", id="a"), Outgoing("x", id="b")])[0].created,
    "unique": lambda queue: queue.send("x", id="a", unique_for=60).created,
    "replacing": lambda queue: queue.send("x", id="a", on_conflict="replace").created,
    "at least once": lambda queue: bool(queue.send("x")),
}


@pytest.mark.parametrize("way", SENDING)
def test_refused_send_leaves_nothing_and_is_sent_when_the_right_is_granted(way: str, any_server: RedisServer) -> None:
    can_ask = any_server.version != "6.2"  # else only `send` takes its writes back: docs/acl.md
    for right in [each for each in LINES["producer"] if each.startswith("+") and "|" not in each]:
        any_server.flush()
        grant(any_server, "producer", f"-{right[1:]}")
        with as_user(any_server, "producer") as mine, as_root(any_server) as root:
            forget_scripts(root)
            root.send("x", id="other")
            try:
                SENDING[way](mine)
            except ServerError:
                if can_ask or way not in {"unique", "replacing"}:
                    assert eventually(partial(is_whole, root), 20), right
                    assert root.stats().pending + root.stats().ready == 1, right
                else:
                    continue
                grant(any_server, "producer")
                assert SENDING[way](mine), right
            names = {message.id for message in root.receive(10)}
            assert len(names) == (3 if way == "many" else 2), right
            assert_whole(root)
            assert root.stats().missing == 0


COMMANDS = {
    "producer": [["send", "emails", "x", "--id", "a"], ["cancel", "emails", "a"]],
    "consumer": [["consume", "emails", "--exec", "true", "--burst"]],
    "observer": [
        ["stats"],
        ["stats", "emails"],
        ["stats", "emails", "--upcoming"],
        ["top", "--once"],
        ["peek", "emails"],
        ["check", "app:emails"],
        ["dead", "list", "emails"],
        ["doctor"],
    ],
    "relay": [["relay", "sqlite:///shop.db", "--create-table"], ["relay", "sqlite:///shop.db", "--burst"]],
    "scheduler": [
        ["cron", "add", "emails", "nightly", "0 3 * * *", "x"],
        ["cron", "list", "emails"],
        ["cron", "run", "emails", "nightly"],
        ["cron", "remove", "emails", "nightly"],
    ],
    "administrator": [
        ["dead", "requeue", "emails", "--older-than", "1h"],
        ["pause", "emails"],
        ["resume", "emails"],
        ["purge", "emails", "-y"],
        ["doctor", "--repair"],
        ["queue", "remove", "emails", "-y"],
    ],
}


@each_role
def test_each_role_can_use_the_command_line(role: str, server: RedisServer, invoke: Invoke, tmp_path: Path) -> None:
    with as_root(server) as root:
        root.send("x")
    grant(server, role)
    code = "from delayq import Queue\nemails = Queue('emails')\nemails.handler(print)\n"
    (tmp_path / "app.py").write_text(code)  # for check
    for words in COMMANDS[role]:
        done = invoke(*words, env={"DELAYQ_URL": f"unix://{role}:secret@{server.socket}"})
        assert done.exit_code == 0, done.output
        assert "grant" not in done.stderr


@pytest.mark.parametrize(
    ("extra", "story"),
    [
        ("a consumer that sends messages with an ack (`then=`)", "chains"),
        ("a consumer of a queue with `concurrency_key`", "shares"),
    ],
)
def test_consumer_can_do_more_with_the_optional_rights(extra: str, story: str, any_server: RedisServer) -> None:
    added = ON_OCCASION[extra].split()
    assert tell(any_server, "consumer", [*LINES["consumer"], *added], STORIES[story]) == ""
    for right in added:
        others = [each for each in added if each != right]
        assert tell(any_server, "consumer", [*LINES["consumer"], *others], STORIES[story]), right


def sees_keys(mine: Queue, root: Queue) -> None:
    """Count how much of each key's limit is in use."""
    root._context.settings = replace(root._context.settings, concurrency_key=lambda _: "k")
    root.configure(concurrency_per_key=1)
    root.send_many([Outgoing("x"), Outgoing("x")])
    root.receive(2)
    forget_scripts(root)
    use = mine.execute(limit_use)
    assert use is not None
    assert use.keys == (KeyUse("k", 1, 1),)


def test_observer_can_see_key_usage_with_the_optional_rights(any_server: RedisServer) -> None:
    added = ON_OCCASION[
        "an observer who sees how much of `concurrency_per_key` each key uses (a queue's page on the dashboard)"
    ].split()
    assert tell(any_server, "observer", [*LINES["observer"], *added], sees_keys) == ""
    for right in added:
        others = [each for each in added if each != right]
        assert tell(any_server, "observer", [*LINES["observer"], *others], sees_keys), right


def waits(mine: Queue, root: Queue) -> None:
    """Wait for the result of a task that another program runs."""

    def double(n: int) -> int:
        return 2 * n

    sent = root.task(results=60)(double).send(4)
    waiting = mine.task(results=60)(double)
    with ThreadPoolExecutor(1) as threads:
        wait = threads.submit(waiting.result, sent.id, 20)
        time.sleep(0.2)
        Consumer(root).drain()
        assert wait.result() == 8
    record = mine.result(sent.id)
    assert record is not None
    assert record.value == 8


WAITING = next(each for each in ON_OCCASION if "[results]" in each)


def test_observer_can_wait_for_results_with_the_optional_rights(any_server: RedisServer) -> None:
    added = ON_OCCASION[WAITING].split()
    assert tell(any_server, "observer", [*LINES["observer"], *added], waits) == ""
    for right in added:
        others = [each for each in added if each != right]
        assert tell(any_server, "observer", [*LINES["observer"], *others], waits), right


SAMPLING = ON_OCCASION[
    "an observer or administrator who takes samples (`queue.sample`) of a queue that may have no consumer"
].split()


@pytest.mark.parametrize("role", ["observer", "administrator"])
def test_role_can_take_samples_with_the_optional_rights(role: str, any_server: RedisServer) -> None:
    assert tell(any_server, role, [*LINES[role], *SAMPLING], STORIES["samples"]) == ""
    for right in SAMPLING:
        others = [each for each in SAMPLING if each != right]
        without = [each for each in LINES[role] if each != right]
        assert tell(any_server, role, [*without, *others], STORIES["samples"]), right


KEEPING = {
    "producer": ("sends", "corrects"),
    "consumer": ("receives", "recovers", "recurs"),
    "administrator": ("manages", "corrects", "repairs"),
    "scheduler": ("schedules",),
}
"""Of each role, the stories in which messages move."""

TO_A_LEDGER = ON_OCCASION["a user who changes a queue with a ledger (`events`)"].split()


def noted(story: str) -> Story:
    """Return a story of a queue with a ledger, which must contain everything at the end."""

    def keep(mine: Queue, root: Queue) -> None:
        root.configure(events=True)
        STORIES[story](mine, root)
        bookkeeping.check(root, *(["sent"] if story == "repairs" else []))  # this story damages the counters on purpose

    return keep


@pytest.mark.parametrize("role", KEEPING)
def test_role_can_write_the_ledger_with_the_optional_rights(role: str, any_server: RedisServer) -> None:
    for story in KEEPING[role]:
        assert tell(any_server, role, [*LINES[role], *TO_A_LEDGER], noted(story)) == "", story
        for right in TO_A_LEDGER:
            others = [each for each in TO_A_LEDGER if each != right]
            without = [each for each in LINES[role] if each != right]
            assert tell(any_server, role, [*without, *others], noted(story)), (story, right)


def test_user_without_the_right_to_append_to_the_ledger_changes_nothing(any_server: RedisServer) -> None:
    """Only from 7.0 on, where the server can say it: on 6.2 the script continues without the entry."""
    grant(any_server, "producer", *(right for right in TO_A_LEDGER if right != "+xadd"))
    with as_root(any_server) as root, as_user(any_server, "producer") as mine:
        root.configure(events=True)
        before = contents(any_server)
        if any_server.version >= "7":
            with pytest.raises(LoginRefused, match=r"grant this user \+xadd;"):
                mine.send("x")
            assert contents(any_server) == before
        else:
            assert mine.send("x").created
            assert bookkeeping.entries(root) == []


def test_relay_notices_losses_with_the_optional_rights(own_server: RedisServer) -> None:
    """Without each of them, it waits some seconds instead."""
    [name] = [each for each in ON_OCCASION if each.startswith("a relay, so that it knows")]
    added = ON_OCCASION[name].split()
    assert tell(own_server, "relay", [*LINES["relay"], *added], STORIES["notices_losses"]) == ""
    for right in added:
        others = [each for each in added if each != right]
        assert tell(own_server, "relay", [*LINES["relay"], *others], STORIES["notices_losses"]), right
