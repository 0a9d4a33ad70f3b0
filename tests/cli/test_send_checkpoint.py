"""send --file --resume: every line once, whatever interrupted it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from delayq.cli.send import file

from delayq import Outgoing, Queue, checkpoint
from delayq.errors import DelayqError, ServerUnreachable
from delayq.operations import send
from tests.cli.conftest import Invoke, Start
from tests.conftest import StartServer
from tests.harness.lines import Write, numbered, numbers
from tests.harness.proxy import Decide, Proxy
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_resume_continues_at_the_corrected_line(invoke: Invoke, queue: Queue, write: Write):
    write([*numbered(700), "oops", *numbered(5, first=701)])
    assert invoke("send", "emails", "--file", "emails.jsonl").exit_code == 2
    write([*numbered(706)])
    result = invoke("send", "emails", "--file", "emails.jsonl", "--resume")
    assert result.exit_code == 0
    assert "continuing emails.jsonl after line 700\n" in result.stderr
    assert result.stdout.startswith("sent 6 messages from emails.jsonl to emails in ")
    assert numbers(queue) == list(range(706))


def test_resume_of_a_complete_file_sends_only_what_was_added(invoke: Invoke, queue: Queue, write: Write):
    resume = ["send", "emails", "--file", "emails.jsonl", "--resume", "--json"]
    write(numbered(10))
    first = invoke(*resume)
    assert "starting with line 1" in first.stderr
    assert json.loads(first.stdout)["sent"] == 10
    assert json.loads(invoke(*resume).stdout)["sent"] == 0
    write(numbered(13))
    assert json.loads(invoke(*resume).stdout)["sent"] == 3
    assert numbers(queue) == list(range(13))


def test_file_is_sent_again_without_resume(invoke: Invoke, queue: Queue, write: Write):
    write(numbered(3))
    for _ in range(2):
        assert invoke("send", "emails", "--file", "emails.jsonl").exit_code == 0
    assert numbers(queue) == [0, 0, 1, 1, 2, 2]


def test_file_that_is_sent_again_without_resume_gets_a_note(invoke: Invoke, write: Write):
    write(numbered(3))
    words = ["send", "emails", "--file", "emails.jsonl"]
    assert invoke(*words).stderr == ""
    again = invoke(*words).stderr
    assert again.startswith("3 lines of emails.jsonl, or of a file like it, already sent to emails: ")
    assert "lines without an id are sent again; --resume" in again
    assert invoke(*words, "--resume").stderr == "continuing emails.jsonl after line 3\n"


def test_resume_of_a_file_whose_sent_lines_have_changed_is_refused(invoke: Invoke, queue: Queue, write: Write):
    write([*numbered(3), "oops"])
    invoke("send", "emails", "--file", "emails.jsonl")
    write([{"payload": 0}, {"payload": 100}, {"payload": 2}, {"payload": 3}])
    result = invoke("send", "emails", "--file", "emails.jsonl", "--resume")
    assert result.exit_code == 2
    assert "emails.jsonl has changed: some of its first 3 lines" in result.stderr
    assert numbers(queue) == [0, 1, 2]


def test_resume_of_a_new_file_with_the_old_name_starts_over(invoke: Invoke, queue: Queue, write: Write):
    write(numbered(3))
    invoke("send", "emails", "--file", "emails.jsonl")
    write([{"payload": 0}, {"payload": 100}])
    assert invoke("send", "emails", "--file", "emails.jsonl", "--resume").exit_code == 0
    assert numbers(queue) == [0, 0, 1, 2, 100]


def test_file_that_was_moved_is_resumed(invoke: Invoke, queue: Queue, write: Write, tmp_path: Path):
    path = write([*numbered(3), "oops"])
    invoke("send", "emails", "--file", "emails.jsonl")
    (tmp_path / "elsewhere").mkdir()
    path.unlink()
    (tmp_path / "elsewhere" / "emails.jsonl").write_text(write(numbered(4)).read_text())
    assert invoke("send", "emails", "--file", "elsewhere/emails.jsonl", "--resume").exit_code == 0
    assert numbers(queue) == [0, 1, 2, 3]


@pytest.mark.full
@pytest.mark.parametrize("shards", [1, 3])
def test_killed_send_is_resumed_without_loss_or_duplicate_while_messages_are_handled(
    shards: int, start: Start, server: RedisServer, write: Write
):
    count = 20_000
    write(numbered(count))
    handled: list[int] = []
    with Queue("emails", url=server.url, shards=shards) as queue:
        queue.pause()  # records the number of shards
        queue.resume()
        with Proxy(server.socket) as proxy:
            words = ["send", "emails", "--file", "emails.jsonl", "--url", f"{proxy.url}?socket_timeout=60"]
            senders = [start(*words)]
            proxy.decide = killing(senders, transactions=7)
            while senders[-1].poll() != 0:
                for message, ours in _acked(queue):
                    handled += [message.payload] if ours else []
                if senders[-1].poll() == -signal.SIGKILL:
                    senders.append(start(*words, "--resume"))
        while batch := list(_acked(queue)):
            handled += [message.payload for message, _ in batch]
        assert len(senders) == 4
        assert sorted(handled) == list(range(count))
        assert queue.stats().sent == count


def killing(senders: list[subprocess.Popen[str]], transactions: int) -> Decide:
    """Kill each of the first three senders after it has started some transactions; the last may be done or not."""
    seen = Counter[int]()

    def decide(name: str) -> None:
        number = len(senders)
        seen[number] += name == "EXEC"
        if number <= 3 and seen[number] >= transactions:
            senders[-1].kill()

    return decide


def _acked(queue: Queue) -> Iterator[tuple[Any, bool]]:
    messages = queue.receive(max_messages=500)
    return zip(messages, queue.ack(messages), strict=True)


def test_lost_reply_is_reported_and_nothing_is_sent_twice(queue: Queue, write: Write, monkeypatch: pytest.MonkeyPatch):
    """The connection breaks after the server has run the transaction, but before it replies."""
    path = write(numbered(10))
    broken = iter([True])
    read = redis.connection.UnixDomainSocketConnection.read_response

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        reply = read(self, *args, **kwargs)
        if isinstance(reply, list) and len(reply) == 3 and next(broken, False):  # of EXEC: HSET, send, EXPIRE
            raise redis.ConnectionError("cut")
        return reply

    with path.open("rb") as stream:
        sender = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=False))
        monkeypatch.setattr(redis.connection.UnixDomainSocketConnection, "read_response", read_response)
        with pytest.raises(ServerUnreachable, match="continue with --resume, which sends nothing twice"):
            sender.send(stream, None)
    monkeypatch.undo()
    assert queue.stats().sent == 10
    for message in queue.receive(max_messages=10):
        message.ack()
    with path.open("rb") as stream:
        again = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=True))
        again.send(stream, None)
    assert (again.sent, queue.stats().sent) == (0, 10)


@pytest.mark.parametrize(
    ("ids", "options", "max_length"),
    [
        (["a", "b", "c", "d", "e"], {}, 4),
        (["a", "b", "c"], {}, 2),
        (["a", "waits", "c", "d"], {}, 3),
        (["a", "cancelled", "c"], {}, 3),
        (["a", "b", "c", "d"], {"unique_for": 60}, 4),
        (["a", "waits", "c", "dead", "e"], {"on_conflict": "replace"}, 4),
    ],
    ids=["some", "none", "existing", "cancelled", "reserved", "replaced"],
)
def test_kill_at_a_full_queue_loses_no_line_and_sends_none_twice(
    ids: list[str],
    options: dict[str, Any],
    max_length: int,
    queue: Queue,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
):
    """The sender ends after the server has run a transaction of which the queue had no room for all."""
    queue.send("x", id="dead")
    queue.receive()[0].reject("why")
    queue.send_many([Outgoing("old", id=id_) for id_ in ("waits", "waits, too", "cancelled")])
    queue.cancel("cancelled")
    queue.configure(max_length=max_length)
    path = write([{"payload": id_, "id": id_, **options} for id_ in ids])
    commit = checkpoint.CheckpointExecutor.commit

    def kill(self: checkpoint.CheckpointExecutor, call: Any) -> Any:
        results = commit(self, call)
        if any(isinstance(each, int) for each in results):
            raise KeyboardInterrupt
        return results

    with monkeypatch.context() as patch, path.open("rb") as stream:
        sender = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=False))
        patch.setattr(checkpoint.CheckpointExecutor, "commit", kill)
        with pytest.raises(KeyboardInterrupt):
            sender.send(stream, None)
    queue.configure(max_length=None)
    handled: list[Any] = []
    for _ in range(2):
        handled += [message.payload for message, _ in _acked(queue)]
        with path.open("rb") as stream:
            journal = file.open_journal(queue, path.name, stream, resume=True)
            file.FileSender(queue, path.name, journal).send(stream, None)
    there = [] if "on_conflict" in options else ["waits"]
    assert sorted(each for each in handled if each != "old") == sorted({*ids} - {*there})
    assert queue.receive() == []


def test_kill_at_a_failed_send_loses_no_line(
    queue: Queue, write: Write, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    path = write(numbered(10))
    queue.pause()  # records the queue
    queue.resume()
    redis_client.set("delayq:{emails}:pending", "of the wrong type")

    killed = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch, path.open("rb") as stream:
        sender = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=False))
        patch.setattr(checkpoint.CheckpointExecutor, "_write", killed)
        with pytest.raises((KeyboardInterrupt, DelayqError)):
            sender.send(stream, None)
    redis_client.delete("delayq:{emails}:pending")
    with path.open("rb") as stream:
        journal = file.open_journal(queue, path.name, stream, resume=True)
        file.FileSender(queue, path.name, journal).send(stream, None)
    assert numbers(queue) == list(range(10))


def test_sending_a_file_twice_at_once_is_refused(queue: Queue, write: Write):
    path = write(numbered(1200))
    with path.open("rb") as stream, path.open("rb") as other:
        first = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=False))
        batches = file.batches(first.entries(stream))
        first.send_batch(next(batches))
        second = file.FileSender(queue, path.name, file.open_journal(queue, path.name, other, resume=True))
        second.send(other, None)
        with pytest.raises(DelayqError, match="another process is sending this file"):
            first.send_batch(next(batches))
    assert numbers(queue) == list(range(1200))


def test_full_server_does_not_move_the_checkpoint(invoke: Invoke, write: Write, start_server: StartServer):
    server = start_server(config={"save": "3600 1"})
    write([{"payload": "x" * 10_000} for _ in range(2000)])
    with server.client() as client, Queue("emails", url=server.url) as queue:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 8_000_000)
        result = invoke("send", "emails", "--file", "emails.jsonl", "--url", server.url)
        assert result.exit_code == 1
        assert "maxmemory" in result.stderr
        sent = queue.stats().sent
        assert 0 < sent < 2000
        client.config_set("maxmemory", 0)
        result = invoke("send", "emails", "--file", "emails.jsonl", "--resume", "--json", "--url", server.url)
        assert json.loads(result.stdout)["sent"] == 2000 - sent
        assert queue.stats().pending == 2000


def test_refused_send_does_not_move_the_checkpoint(
    invoke: Invoke, queue: Queue, write: Write, redis_client: redis.Redis
):
    write(numbered(10))
    queue.pause()  # records the queue
    redis_client.set("delayq:{emails}:pending", "of the wrong type")
    assert invoke("send", "emails", "--file", "emails.jsonl").exit_code == 1
    redis_client.delete("delayq:{emails}:pending")
    assert invoke("send", "emails", "--file", "emails.jsonl", "--resume").exit_code == 0
    assert numbers(queue) == list(range(10))


@pytest.mark.parametrize("version", ["6.2", "8.2"])
def test_user_who_may_not_write_the_checkpoint_sends_nothing(
    invoke: Invoke, write: Write, start_server: StartServer, version: str
):
    write(numbered(10))
    server = start_server(version=version)
    with server.client() as client, Queue("emails", url=server.url) as queue:
        queue.pause()  # records the queue
        client.execute_command("ACL", "SETUSER", "sender", "on", ">word", "~*", "&*", "+@all", "-hset")
        url = server.url.replace("unix://", "unix://sender:word@")
        for options in ([], ["--resume"]):
            result = invoke("send", "emails", "--file", "emails.jsonl", "--url", url, *options)
            assert (result.exit_code, "hset" in result.stderr) == (2, True)
        assert queue.stats().sent == 0


def test_send_that_is_cut_between_two_shards_is_resumed_without_loss_or_duplicate(
    server: RedisServer, write: Write, monkeypatch: pytest.MonkeyPatch
):
    path = write(numbered(500))
    commits = iter([True, True, True, True, False])
    commit = checkpoint.CheckpointExecutor.commit

    def cut(self: checkpoint.CheckpointExecutor, call: Any) -> Any:
        if not next(commits):
            raise ServerUnreachable("cut")
        return commit(self, call)

    handled: list[int] = []
    with Queue("wide", url=server.url, shards=3) as queue, path.open("rb") as stream:
        queue.pause()  # records the shards
        queue.resume()
        sender = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=False))
        monkeypatch.setattr(checkpoint.CheckpointExecutor, "commit", cut)
        with pytest.raises(ServerUnreachable):
            sender.send(stream, None)
        monkeypatch.undo()
        while batch := list(_acked(queue)):
            handled += [message.payload for message, _ in batch]
        assert send.MAX_SENT < len(handled) < 2 * send.MAX_SENT
        stream.seek(0)
        again = file.FileSender(queue, path.name, file.open_journal(queue, path.name, stream, resume=True))
        again.send(stream, None)
        while batch := list(_acked(queue)):
            handled += [message.payload for message, _ in batch]
        assert sorted(handled) == list(range(500))


@pytest.mark.full
def test_file_is_sent_and_resumed_on_a_cluster(invoke: Invoke, write: Write, start_server: StartServer):
    node = start_server(port=True, config={"cluster-enabled": "yes", "save": "3600 1"})
    url = f"redis+cluster://127.0.0.1:{node.port}"
    with node.client() as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(16_384))
        assert eventually(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    with Queue("emails", url=url, shards=3) as queue:
        queue.pause()  # records the shards
        write([*numbered(700), "oops"])
        assert invoke("send", "emails", "--file", "emails.jsonl", "--url", url).exit_code == 2
        write(numbered(800))
        assert invoke("send", "emails", "--file", "emails.jsonl", "--url", url, "--resume").exit_code == 0
        assert numbers(queue) == list(range(800))


def test_checkpoint_expires_after_a_month(invoke: Invoke, redis_client: redis.Redis, write: Write):
    write(numbered(3))
    invoke("send", "emails", "--file", "emails.jsonl")
    (key,) = redis_client.keys("delayq:{emails}:file:*")
    assert 29 * 86400 < redis_client.ttl(key) <= 30 * 86400
