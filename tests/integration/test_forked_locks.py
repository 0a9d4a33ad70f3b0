"""A process forked while other threads hold the locks of a queue's client: the child must not wait for them."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any

import pytest

from delayq import Queue, Topic
from delayq.late_import import late_import
from delayq.transport.pool import Pool
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.topologies import SERVICE, watch

LOCKS = type(threading.Lock()), type(threading.RLock())
SECONDS = 30


def locks_of(*roots: object) -> dict[str, Any]:
    """Return all locks that some objects, and the modules of delayq and redis-py, can reach, by the way to each."""
    modules = {name: vars(each) for name, each in sys.modules.items() if name.partition(".")[0] in {"delayq", "redis"}}
    seen, found = {id(late_import)}, {}
    todo = [*((type(each).__name__, each) for each in roots), *modules.items()]
    while todo:
        way, each = todo.pop()
        if id(each) in seen or isinstance(each, ModuleType | FunctionType | type | threading.Thread):
            continue
        seen.add(id(each))
        if isinstance(each, LOCKS):
            found[way] = each
        elif isinstance(each, dict):
            todo += [(f"{way}.{key}", part) for key, part in each.items()]
        elif not isinstance(each, CellType):
            parts = enumerate(gc.get_referents(each))
            todo += [(way if isinstance(part, dict) else f"{way}[{n}]", part) for n, part in parts]
    return found


@contextlib.contextmanager
def held(locks: Iterable[Any]) -> Iterator[None]:
    """Let another thread hold locks; those that are held already stay as they are."""
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        mine = [lock for lock in locks if lock.acquire(timeout=1)]
        holds.set()
        ends.wait()
        for lock in mine:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def use(queue: Queue, topic: Topic) -> None:
    queue.send("x", id=str(os.getpid()))
    (message,) = queue.receive(1)
    message.ack()
    topic.publish("x")
    assert queue.stats().acked > 0


def use_and_close(queue: Queue, topic: Topic) -> None:
    use(queue, topic)
    queue.close()
    topic.close()


def child_ends(act: Callable[..., object], *args: Any) -> bool:
    """Whether a forked process can do something."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        code = 1
        with contextlib.suppress(BaseException):
            act(*args)
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def sentinel_url(start_server: StartServer) -> str:
    master, sentinel = start_server(port=True), start_server(port=True, sentinel=True)
    watch(sentinel, master)
    return f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    "where",
    ["server", "client", *(pytest.param(each, marks=pytest.mark.full) for each in ("sentinel_url", "cluster_url"))],
)
def test_child_does_not_wait_for_locks_that_threads_of_its_parent_hold(
    where: str, redis_server: RedisServer, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as stack:
        if where == "client":
            client = stack.enter_context(redis_server.client())
            queue, topic = Queue("jobs", redis=client), Topic("news", redis=client)
        else:
            url = redis_server.url if where == "server" else request.getfixturevalue(where)
            queue, topic = Queue("jobs", url=url), Topic("news", url=url)
        stack.enter_context(queue)
        stack.enter_context(topic)
        use(queue, topic)
        locks = locks_of(queue, topic)
        assert len(locks) > 8, locks
        with held(locks.values()):
            ends = child_ends(use_and_close, queue, topic)
        waited_for = []
        for way, lock in () if ends else locks.items():
            with held([lock]):
                if not child_ends(use_and_close, queue, topic):
                    waited_for.append(way)
        assert ends, waited_for


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_forked_while_a_users_client_is_checked_does_not_wait_for_its_locks(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_checked, ends = threading.Event(), threading.Event()
    with redis_server.client() as client:

        def check(_: object) -> None:
            with held(locks_of(client).values()):
                is_checked.set()
                ends.wait(SECONDS)

        def send() -> None:
            Queue("jobs", redis=client).send("x")

        def send_in_child() -> None:
            monkeypatch.undo()
            send()

        monkeypatch.setattr("delayq.transport.executor.check_server", check)
        thread = threading.Thread(target=send)
        thread.start()
        is_checked.wait()
        try:
            assert child_ends(send_in_child)
        finally:
            ends.set()
            thread.join()


def test_pool_whose_client_a_child_drops_before_it_has_new_locks_does_not_wait() -> None:
    pool = Pool()
    with held([pool._lock]):
        reset = threading.Thread(target=pool.reset, daemon=True)
        reset.start()
        reset.join(SECONDS)
        assert not reset.is_alive()
