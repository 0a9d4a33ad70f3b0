"""The rights that docs/acl.md lists for Spark are sufficient, all needed, and everything else is refused."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from delayq import NewRecord, Outgoing, Queue, Topic
from delayq.errors import LoginRefused
from delayq.spark import reading
from delayq.spark.jobs.archive import check_ledger
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.sink import Sink
from delayq.transport import fast_socket
from tests.harness.acl.telling import LINES, ON_OCCASION, contents, denials, forget_scripts, grant
from tests.harness.lake.lakes import DAY, HORIZON, Clock, load
from tests.harness.servers import RedisServer
from tests.harness.spark import reads
from tests.harness.tree import LUA

pytestmark = pytest.mark.full

Options: TypeAlias = dict[str, str]
Story: TypeAlias = Callable[[Options, RedisServer], None]

MESSAGES = pa.table({"id": ["a", "b"], "payload": ["x", "y"], "delay": [0.0, 60.0]})


def write(mine: Options, rows: pa.Table = MESSAGES) -> None:
    """Do what a task that writes to the queue does."""
    Sink(mine | {"queue": "emails"}, from_arrow_schema(rows.schema)).write(iter(rows.to_batches()))


def follow(mine: Options) -> list[dict[str, Any]]:
    """Do what a streaming query does in its first batch."""
    reader = reading.stream_reader(mine, reads.schema(mine))
    with ExitStack() as stack:
        stack.callback(reader.stop)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        pieces = list(reader.partitions(start, end))
    return [row for piece in pieces for row in reads.rows(reads.copied(reader).read(piece))]


def root_of(server: RedisServer, **options: Any) -> Queue:
    return Queue("emails", url=server.url, **options)


def writes(mine: Options, server: RedisServer) -> None:
    """Write a table, and write it again when parts of it are garbage or delivered."""
    with root_of(server) as root:
        forget_scripts(root)
        write(mine)
        assert root.cancel("b") == "cancelled"
        root.receive()[0].ack()
        root.configure(max_length=1000)
        forget_scripts(root)
        write(mine)
        assert root.stats().sent == 2


def fill(root: Queue) -> None:
    root.configure(events=True)
    root.send_many([Outgoing("x", id=f"m{n}", delay=n // 2 * 60) for n in range(4)])
    dead, running = root.receive()
    dead.reject("unwanted", error="broken")
    assert root.cancel(running.id) == "in_flight"
    client: Any = root._executor.client
    client.delete(root._context.shards[0].keys.message("m2"))
    root.schedules.add("tick", "@hourly")
    forget_scripts(root)


def reads_messages(mine: Options, server: RedisServer) -> None:
    """Read messages, dead letters, counts and schedules."""
    with root_of(server) as root:
        fill(root)
        options = mine | {"queue": "emails"}
        rows = reads.read(options)
        assert len(rows) == 5
        assert [row["cancelled"] for row in rows].count(True) == 1
        assert [row["error"] for row in reads.read(options | {"read": "dead"})] == ["broken"]
        assert reads.read(options | {"read": "stats"})[0]["sent"] == 5
        root.send_many([Outgoing(b"x" * 10_000, delay=60) for _ in range(2)])  # then sizes are looked up
        assert len(reads.read(options)) == 7
        forget_scripts(root)
        assert [row["name"] for row in reads.read(options | {"read": "schedules"})] == ["tick"]


def reads_ledger(mine: Options, server: RedisServer) -> None:
    """Read the ledger, in a batch and as a stream."""
    with root_of(server) as root:
        fill(root)
        options = mine | {"events": "emails"}
        assert len(reads.read(options)) == len(follow(options)) > 5
        root.configure(events=False)
        check_ledger(RedisOptions.of(mine), "emails")  # what `archive` does first, here with the rest of a ledger


def reads_topic(mine: Options, server: RedisServer) -> None:
    """Read a topic, in a batch and as a stream, including records that fall due."""
    with Topic("orders", url=server.url) as root:
        root.publish_many([NewRecord(1), NewRecord(2)])
        root.publish(3, delay=0.001)
        client: Any = root._executor.client
        client.script_flush()
        time.sleep(0.002)  # until it is due
        assert len(follow(mine | {"topic": "orders"})) == 3
        assert len(reads.read(mine | {"topic": "orders"})) == 3


def hydrates(mine: Options, server: RedisServer) -> None:
    """Load the messages of a lake into Redis, twice."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"horizon": HORIZON, "lake": folder, "clock": clock}
        with root_of(server, **options) as root:
            root.send_many([Outgoing("x", delay=DAY, id=each) for each in "ab"])
            forget_scripts(root)
        clock.later(DAY)
        with Queue("emails", url=mine["url"], **options) as queue:
            (loaded,) = load(queue, Path(folder))
            (path,) = Path(folder).rglob("_manifest*")
            path.unlink()
            (again,) = load(queue, Path(folder))
    assert (loaded.file.sent, again.file.existing) == (2, 2)


OWN: dict[str, tuple[Story, ...]] = {
    "spark_writer": (writes, hydrates),
    "spark_reader": (reads_messages, reads_ledger),
    "spark_topic_reader": (reads_topic,),
}
SCRIPTS = {
    "spark_writer": "send_unique",
    "spark_reader": "stats ledger_extent topics/extent topics/range",
    "spark_topic_reader": "topics/extent topics/range topics/due topics/append",
}

each_role = pytest.mark.parametrize("role", OWN)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat each connection as idle for half a minute, like that of a busy task, so that a PING checks it."""
    monkeypatch.setattr(fast_socket, "_CHECK_AFTER_SECONDS", -1.0)


def options_of(server: RedisServer, role: str) -> Options:
    return {"url": f"unix://{role}:secret@{server.socket}"}


def tell(server: RedisServer, role: str, rights: Iterable[str], story: Story) -> str:
    """Run a story as a user with these rights; return what failed, or what was denied and tolerated."""
    server.flush()
    with server.client(decode_responses=True) as admin:
        admin.execute_command("ACL", "SETUSER", role, *rights)
        admin.execute_command("ACL", "LOG", "RESET")
        try:
            story(options_of(server, role), server)
        except Exception as error:  # noqa: BLE001  # any error means that the story did not finish
            return repr(error)
    return ", ".join(denials(server, role))


@each_role
def test_role_can_do_everything_it_should(role: str, any_server: RedisServer) -> None:
    for story in OWN[role]:
        assert tell(any_server, role, LINES[role], story) == "", story.__name__


@each_role
def test_role_can_run_every_command_of_its_scripts(role: str) -> None:
    texts = [(LUA / f"{name}.lua").read_text() for name in SCRIPTS[role].split()]
    commands = {f"+{name.lower()}" for text in texts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert commands - {right.partition("|")[0] for right in LINES[role]} == set()


@each_role
def test_role_needs_each_of_its_rights(role: str, any_server: RedisServer) -> None:
    needless = []
    for right in LINES[role][3:]:
        rights = [each for each in LINES[role] if each != right]
        if not any(tell(any_server, role, rights, story) for story in OWN[role]):
            needless.append(right)
    assert needless == []


def postpone(mine: Options) -> None:
    """Publish a delayed record."""
    with Topic("orders", url=mine["url"]) as topic:
        topic.publish("x", delay=60)


REFUSED: dict[str, Callable[[Options], Any]] = {
    "spark_writer": lambda mine: reads.read(mine | {"queue": "emails"}),
    "spark_reader": write,
    "spark_topic_reader": postpone,
}


@each_role
def test_role_is_refused_everything_else_and_changes_nothing(role: str, any_server: RedisServer) -> None:
    with root_of(any_server) as root:
        fill(root)
    grant(any_server, role)
    before = contents(any_server)
    with pytest.raises(LoginRefused, match=r"grant this user .*docs/acl\.md"):
        REFUSED[role](options_of(any_server, role))
    assert contents(any_server) == before


def test_writer_can_write_the_ledger_with_the_optional_rights(any_server: RedisServer) -> None:
    added = ON_OCCASION["a user who changes a queue with a ledger (`events`)"].split()

    def noted(mine: Options, server: RedisServer) -> None:
        with root_of(server) as root:
            root.configure(events=True)
            write(mine)
            assert root.events.length() == len(MESSAGES)

    assert tell(any_server, "spark_writer", [*LINES["spark_writer"], *added], noted) == ""
    for right in added:
        rights = [*LINES["spark_writer"], *(each for each in added if each != right)]
        assert tell(any_server, "spark_writer", rights, noted), right


def test_administrator_can_read_messages_with_the_optional_rights(any_server: RedisServer) -> None:
    added = ON_OCCASION["an administrator who reads messages with Spark, as `delayq pipeline drain` and `redrive` do"]
    assert tell(any_server, "administrator", [*LINES["administrator"], added], reads_messages) == ""
    assert tell(any_server, "administrator", LINES["administrator"], reads_messages)
