"""Many threads that send at the same time, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from delayq import DuplicateMessage, Queue, QueueFull, SentMessage
from delayq.aio import Queue as AioQueue
from delayq.errors import NotReplicated, ServerError, ServerNotReady, ServerOutOfMemory, ServerUnreachable
from delayq.model.placement import shard_of
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

THREADS = 24


class Gate:
    """Holds a queue's first round trip that has a message until it is opened, and records the ids of all such trips.

    Attributes:
        trips: the ids that each trip sent, and in how many calls.
    """

    def __init__(self, queue: Queue, patch: pytest.MonkeyPatch) -> None:
        self.trips: list[tuple[list[str], int]] = []
        self.held = threading.Event()
        self._open = threading.Event()
        self._run = queue._executor.run
        patch.setattr(queue._executor, "run", self._spy)

    def _spy(self, calls: Any, repeat: bool = True) -> Any:
        sent = [ids_of(call) for call in calls if call.script and call.script.name in {"send", "send_one", "replace"}]
        if sent:
            self.trips.append(([each for ids in sent for each in ids], len(sent)))
            if not self.held.is_set():
                self.held.set()
                assert self._open.wait(120)
        return self._run(calls, repeat)

    def open(self) -> None:
        self._open.set()


def ids_of(call: Any) -> list[str]:
    """The ids of the messages that a call sends."""
    words = call.args[1 + int(call.args[0]) :]
    return list(words[2::3]) if call.script.name == "send" else [words[1]]


@pytest.fixture(params=["own", "shared", "shards"])
def queue(request: pytest.FixtureRequest, any_server: RedisServer) -> Iterator[Queue]:
    with any_server.client() as client:
        match request.param:
            case "own":
                queue = Queue("jobs", url=any_server.url)
            case "shared":
                queue = Queue("jobs", redis=client)
            case _:
                queue = Queue("jobs", url=any_server.url, shards=3)
        with queue:
            yield queue


@pytest.fixture
def plain(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as threads:
        yield threads


def outcome(send: Future[SentMessage]) -> SentMessage | BaseException:
    return send.exception(120) or send.result()


def test_each_of_many_threads_sends_its_message_and_gets_its_own_result(
    queue: Queue, threads: ThreadPoolExecutor
) -> None:
    sends = {number: threads.submit(queue.send, number, delay=3600 + number) for number in range(600)}
    sents = {number: send.result(120) for number, send in sends.items()}
    assert len({sent.id for sent in sents.values()}) == queue.stats().sent == queue.stats().pending == 600
    assert all(sent.created for sent in sents.values())
    for number in range(0, 600, 7):
        info = queue.get(sents[number].id)
        assert info is not None
        assert (info.payload, info.due_at) == (number, sents[number].due_at)


def test_chosen_and_random_ids_share_calls(queue: Queue, threads: ThreadPoolExecutor) -> None:
    ids = [f"m{number}" if number % 3 else None for number in range(300)]
    sents = list(threads.map(lambda message_id: queue.send("x", id=message_id), ids))
    assert [sent.id for sent in sents if sent.id.startswith("m") and sent.id[1:].isdigit()] == [
        message_id for message_id in ids if message_id
    ]
    assert all(sent.created for sent in sents)
    assert queue.stats().sent == len({sent.id for sent in sents}) == 300


def test_exactly_one_of_many_senders_creates_the_same_id(queue: Queue, threads: ThreadPoolExecutor) -> None:
    for number in range(20):
        message_id = f"order-{number}"
        sents = list(threads.map(lambda n: queue.send(n, id=message_id), range(THREADS)))  # noqa: B023  # used at once
        assert [sent.id for sent in sents] == [message_id] * THREADS
        assert sum(sent.created for sent in sents) == 1
        (creator,) = [n for n, sent in enumerate(sents) if sent.created]
        info = queue.get(message_id)
        assert info is not None
        assert info.payload == creator
    assert queue.stats().sent == 20


def test_threads_that_send_at_the_same_time_share_a_round_trip(
    plain: Queue, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.send("the queue is known")
    gate = Gate(plain, monkeypatch)
    first = threads.submit(plain.send, 0, id="first")
    assert gate.held.wait(120)
    rest = [threads.submit(plain.send, n, id=f"m{n}") for n in range(10)]
    assert eventually(lambda: len(plain._coalescer._waiting) == 10)
    gate.open()
    assert all(send.result(120).created for send in [first, *rest])
    assert gate.trips[0] == (["first"], 1)
    assert sorted(each for ids, _ in gate.trips[1:] for each in ids) == sorted(f"m{n}" for n in range(10))
    assert len(gate.trips) <= 3
    assert sum(calls for _, calls in gate.trips) == len(gate.trips)


ALONE: dict[str, tuple[dict[str, Any], type[Exception] | None]] = {
    "error": ({"on_conflict": "error"}, None),
    "duplicate": ({"on_conflict": "error", "id": "there"}, DuplicateMessage),
    "replace": ({"on_conflict": "replace", "id": "there"}, None),
    "replicas": ({"wait_replicas": 1}, NotReplicated),
    "large": ({"payload": b"x" * 70_000}, None),
}


@pytest.mark.parametrize("kind", ALONE)
def test_message_that_must_not_share_a_call_is_sent_alone_and_does_not_wait(
    plain: Queue, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 20)
    plain.send("x", id="there")
    gate = Gate(plain, monkeypatch)
    first = threads.submit(plain.send, 0, id="first")
    assert gate.held.wait(120)
    options, error = ALONE[kind]
    message: dict[str, Any] = {"payload": "x", "id": "alone"} | options
    with pytest.raises(error) if error else contextlib.nullcontext():
        plain.send(**message)
    assert not first.done()
    assert gate.trips == [(["first"], 1), ([message["id"]], 1)]
    gate.open()
    assert first.result(120).created


def test_every_thread_gets_its_own_error_when_memory_is_full(
    start_server: StartServer, threads: ThreadPoolExecutor
) -> None:
    server = start_server()
    with server.client() as client, Queue("jobs", url=server.url) as queue:
        queue.send("x")
        client.config_set("maxmemory", 1)
        errors = [outcome(threads.submit(queue.send, number)) for number in range(5)]
        sends = [threads.submit(queue.send, number) for number in range(200)]
        errors += [outcome(send) for send in sends]
        assert {type(error) for error in errors} == {ServerOutOfMemory}
        assert len({id(error) for error in errors}) == 205
        client.config_set("maxmemory", 0)
        assert all(sent.created for sent in threads.map(queue.send, range(100)))
        assert queue.stats().sent == queue.stats().pending == 101


def test_every_thread_gets_an_error_from_a_replica(start_server: StartServer, threads: ThreadPoolExecutor) -> None:
    server = start_server()
    with server.client() as client, Queue("jobs", url=server.url) as queue:
        queue.send("x")
        client.replicaof("127.0.0.1", "1")
        errors = [outcome(send) for send in [threads.submit(queue.send, number) for number in range(100)]]
        assert {type(error) for error in errors} == {ServerNotReady}
        client.replicaof("NO", "ONE")
        assert all(sent.created for sent in threads.map(queue.send, range(100)))


def test_only_threads_that_send_to_an_unavailable_shard_get_an_error(
    redis_client: redis.Redis, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("wide", redis=redis_client, shards=2)
    queue.send("x")
    redis_client.delete("delayq:{wide#1}:pending")
    redis_client.set("delayq:{wide#1}:pending", "no sorted set")
    gate = Gate(queue, monkeypatch)
    ids = [f"m{n}" for n in range(THREADS - 1)]
    first = threads.submit(queue.send, "x", id=next(f"n{n}" for n in range(99) if shard_of(f"n{n}", 2) == 0))
    assert gate.held.wait(120)
    sends = {message_id: threads.submit(queue.send, "x", id=message_id) for message_id in ids}
    assert eventually(lambda: len(queue._coalescer._waiting) == len(ids))
    gate.open()
    assert first.result(120).created
    for message_id, send in sends.items():
        result = outcome(send)
        if shard_of(message_id, 2) == 0:
            assert isinstance(result, SentMessage), f"{message_id} got another's error: {result}"
        else:
            assert isinstance(result, ServerError)
            assert "WRONGTYPE" in str(result)


@pytest.mark.full
def test_confirmed_messages_survive_a_killed_server(start_server: StartServer, threads: ThreadPoolExecutor) -> None:
    server = start_server(appendonly=True)
    confirmed: list[SentMessage] = []
    errors: list[Exception] = []
    strange: list[Exception] = []
    stop = threading.Event()

    with Queue("jobs", url=server.url) as queue, server.client() as client:

        def send() -> None:
            while not stop.is_set():
                try:
                    confirmed.append(queue.send("x"))
                except (ServerUnreachable, ServerNotReady) as error:
                    errors.append(error)
                except Exception as error:  # noqa: BLE001  # there must be no other
                    strange.append(error)

        queue.send("x")
        sends = [threads.submit(send) for _ in range(THREADS)]
        for _ in range(3):
            before = len(confirmed)
            assert eventually(lambda: len(confirmed) > before + 100)  # noqa: B023  # used at once
            failed = len(errors)
            server.kill()
            assert eventually(lambda: len(errors) >= failed + THREADS)  # noqa: B023
            server.start()
        before = len(confirmed)
        assert eventually(lambda: len(confirmed) > before + 100)
        stop.set()
        for each in sends:
            each.result(120)
        assert strange == []
        assert len({sent.id for sent in confirmed}) == len(confirmed)
        assert all(sent.created for sent in confirmed)
        keys = [f"delayq:{{jobs}}:msg:{sent.id}" for sent in confirmed]
        assert client.exists(*keys) == len(keys)
        scores: Any = client.zmscore("delayq:{jobs}:pending", [sent.id for sent in confirmed])
        assert None not in scores
        assert queue.stats().sent == queue.stats().pending == client.zcard("delayq:{jobs}:pending")


@pytest.mark.full
def test_interrupt_of_one_sender_does_not_affect_the_others(
    own_server: RedisServer, threads: ThreadPoolExecutor
) -> None:
    """The main thread sends too, and is interrupted again and again wherever it is."""
    main, stop = threading.get_ident(), threading.Event()
    open_ = threading.Event()

    def end(*_: object) -> None:
        if open_.is_set():
            open_.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, end)
    try:
        # The signal would end the process once its handler is gone.
        with Queue("jobs", url=own_server.url) as queue, contextlib.ExitStack() as ends:
            queue.send("x")

            def send() -> list[SentMessage]:
                sents = []
                while not stop.is_set():
                    sents.append(queue.send("x"))
                return sents

            def interrupt() -> None:
                while not stop.is_set():
                    signal.pthread_kill(main, signal.SIGUSR1)
                    stop.wait(0.0007)

            sends = [threads.submit(send) for _ in range(8)]
            interrupter = threads.submit(interrupt)
            ends.callback(interrupter.result, 120)
            ends.callback(stop.set)
            interrupted, mine = 0, []
            for _ in range(300):
                try:
                    try:
                        open_.set()
                        mine.append(queue.send("x"))
                    finally:
                        open_.clear()
                except KeyboardInterrupt:
                    interrupted += 1
            stop.set()
            interrupter.result(120)
            sents = [sent for each in sends for sent in each.result(120)] + mine
            assert interrupted > 0
            assert all(sent.created for sent in sents)
            assert len({sent.id for sent in sents}) == len(sents)
            stats = queue.stats()
            assert len(sents) + 1 <= stats.sent <= len(sents) + 1 + interrupted
            assert stats.pending == stats.sent
    finally:
        signal.signal(signal.SIGUSR1, before)


def in_child(run: Callable[[], None]) -> int:
    """Fork, run a function in the child, and return its exit code: 0 when the function returned."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(240)
            run()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_forked_while_many_send_can_send(plain: Queue, threads: ThreadPoolExecutor) -> None:
    stop, counts = threading.Event(), [0] * 8

    def send(thread: int) -> None:
        while not stop.is_set():
            assert plain.send("x").created
            counts[thread] += 1

    def send_in_child() -> None:
        assert all(plain.send("x").created for _ in range(5))

    sends = [threads.submit(send, thread) for thread in range(8)]
    assert eventually(lambda: min(counts) > 10)  # all are connected: a pool that is forked while in use needs repair
    try:
        forks = [threads.submit(in_child, send_in_child) for _ in range(4)]
        codes = [in_child(send_in_child) for _ in range(10)] + [fork.result(120) for fork in forks]
    finally:
        stop.set()  # or the end of the pool would wait for them
    for each in sends:
        each.result(120)
    assert codes == [0] * 14
    assert plain.stats().sent == sum(counts) + 14 * 5


def test_thread_whose_send_shared_a_call_sees_only_its_own_refusal(
    plain: Queue, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.configure(max_length=8)
    gate = Gate(plain, monkeypatch)
    first = threads.submit(plain.send, 0, id="first")
    assert gate.held.wait(120)
    rest = {f"m{n}": threads.submit(plain.send, n, id=f"m{n}") for n in range(20)}
    assert eventually(lambda: len(plain._coalescer._waiting) == 20, seconds=60)
    gate.open()
    assert first.result(120).created
    outcomes = {message_id: outcome(send) for message_id, send in rest.items()}
    assert len(gate.trips) <= 3
    refused = {message_id: result for message_id, result in outcomes.items() if isinstance(result, QueueFull)}
    assert len({id(each) for each in refused.values()}) == len(refused) == 13
    for message_id, result in refused.items():
        assert (result.ids, result.unsent, result.sent, result.max_length) == ([message_id], [0], [], 8)
        assert "the message was not stored" in str(result)
    stored = {message_id: result for message_id, result in outcomes.items() if message_id not in refused}
    assert all(isinstance(result, SentMessage) and result.id == message_id for message_id, result in stored.items())
    assert {info.id for info in plain.peek("pending")} == {"first", *stored}


def test_threads_of_several_clients_fill_a_queue_exactly(any_server: RedisServer) -> None:
    with contextlib.ExitStack() as stack:
        queues = [stack.enter_context(Queue("jobs", url=any_server.url)) for _ in range(3)]
        queues[0].configure(max_length=100)
        with ThreadPoolExecutor(64) as pool:
            sends = {f"m{n}": pool.submit(queues[n % 3].send, n, id=f"m{n}") for n in range(256)}
            outcomes = {message_id: outcome(send) for message_id, send in sends.items()}
        refused = {message_id for message_id, result in outcomes.items() if isinstance(result, QueueFull)}
        stored = {message_id for message_id, result in outcomes.items() if isinstance(result, SentMessage)}
        assert (len(stored), len(refused)) == (100, 156)
        assert {info.id for info in queues[0].peek("pending", limit=256)} == stored
        assert (queues[0].stats().sent, queues[0].stats().missing) == (100, 0)


def test_tasks_fill_a_queue_exactly(redis_server: RedisServer) -> None:
    async def send_all() -> list[SentMessage | BaseException]:
        async with AioQueue("jobs", url=redis_server.url) as queue:
            await queue.configure(max_length=50)
            sends = [queue.send(n, id=f"m{n}") for n in range(200)]
            return await asyncio.gather(*sends, return_exceptions=True)

    found = asyncio.run(send_all())
    assert sum(isinstance(each, SentMessage) for each in found) == 50
    assert [each.ids for each in found if isinstance(each, QueueFull)] == [
        [f"m{n}"] for n, each in enumerate(found) if not isinstance(each, SentMessage)
    ]
