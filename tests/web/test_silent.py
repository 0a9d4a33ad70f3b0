"""Silent servers: no queue is blamed for them, and all are read again when the server answers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
import redis

from delayq import Queue
from delayq.errors import InvalidInput, ServerError
from delayq.web import health_sweep, path_params, servers
from delayq.web.poller import ServerPoller
from delayq.web.queue_list import QueueListView
from delayq.web.servers import DashboardServer
from delayq.web.snapshot import QueueSnapshot, glance
from tests.harness.servers import RedisServer
from tests.harness.web.following import holds
from tests.web.conftest import OWN, Client, Enter, act, token_on
from tests.web.test_overview import text_of
from tests.web.test_queue_list import LONG_AGO

PATIENCE = 240.0  # seconds within which a working server answers

NAMES = [f"queue-{number:03}" for number in range(60)]


@pytest.fixture
def unhurried() -> None:
    """Let servers count as silent after the usual time: that is what these tests are about."""


@pytest.fixture
def silenced(own_server: RedisServer) -> Iterator[Callable[[signal.Signals], None]]:
    """Stops and continues the process of a server with sixty queues: it keeps its connections, but does not answer."""
    with own_server.client() as client:
        for name in NAMES:
            Queue(name, redis=client).send("hello", delay=86_400)
    yield lambda number: os.kill(own_server.pid, number)
    os.kill(own_server.pid, signal.SIGCONT)


def watched(server: RedisServer, look: Callable[[ServerPoller], Awaitable[None]]) -> None:
    """Poll a server with a watch that waits only a moment for answers."""

    async def run() -> None:
        known = DashboardServer("main", f"{server.url}?socket_timeout=0.3", "delayq")
        watch = ServerPoller(known, 0)
        try:
            await look(watch)
        finally:
            await watch.close()
            await known.close()

    asyncio.run(run())


async def first_sight(watch: ServerPoller) -> None:
    """Look until the server is seen: on a stalled machine, it is silent too."""
    deadline = time.monotonic() + PATIENCE
    while error := (await watch.now(QueueListView())).error:
        assert time.monotonic() < deadline, error


@pytest.mark.full
def test_round_continues_after_silence_and_blames_no_queue(
    own_server: RedisServer, silenced: Callable[[signal.Signals], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health_sweep, "ROUND_SECONDS", 36_000.0)  # there is no second round
    monkeypatch.setattr(health_sweep, "AGAIN_SECONDS", 0.0)
    unread = list[str]()

    async def look(watch: ServerPoller) -> None:
        async def noted(name: str) -> QueueSnapshot:
            if round_.looked_at >= 2 * health_sweep.AT_ONCE and not unread:
                silenced(signal.SIGSTOP)
            seen = await watch.safely(name, glance)
            if seen.error:
                unread.append(name)
                silenced(signal.SIGCONT)
            return seen

        round_ = health_sweep.HealthSweep(watch.server.queue_names, noted, watch.server.ping)
        round_.ask()
        await holds(lambda: round_.looked_at == len(NAMES))
        assert round_.troubled == {}
        await round_.close()

    watched(own_server, look)
    assert unread


@pytest.mark.full
def test_page_of_a_silent_server_blames_no_queue(
    own_server: RedisServer, silenced: Callable[[signal.Signals], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health_sweep.HealthSweep, "ask", lambda _: None)

    async def look(watch: ServerPoller) -> None:
        await first_sight(watch)
        silenced(signal.SIGSTOP)
        while not (await watch.now(QueueListView())).error:
            pass
        silenced(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while (sight := await watch.now(QueueListView(start=NAMES[50]))).error:
            assert time.monotonic() < deadline, sight.error
        assert (sight.troubled, [each.error for each in sight.queues]) == (0, [""] * 10)

    watched(own_server, look)


@pytest.mark.full
def test_page_of_a_silent_server_waits_for_a_few_queues_only(
    own_server: RedisServer, silenced: Callable[[signal.Signals], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(health_sweep.HealthSweep, "ask", lambda _: None)
    asked = list[str]()

    async def look(watch: ServerPoller) -> None:
        await first_sight(watch)
        look_at = watch.look_at

        async def noted(name: str, since: float) -> QueueSnapshot:
            asked.append(name)
            return await look_at(name, since)

        monkeypatch.setattr(watch, "look_at", noted)
        silenced(signal.SIGSTOP)
        assert (await watch.now(QueueListView())).error

    watched(own_server, look)
    assert asked == NAMES[: health_sweep.AT_ONCE]


@pytest.mark.full
def test_silence_between_two_looks_is_not_blamed_on_the_queue(
    own_server: RedisServer, silenced: Callable[[signal.Signals], None]
):
    looks = list[str]()

    async def look(watch: ServerPoller) -> None:
        async def noted(name: str) -> QueueSnapshot:
            silenced(signal.SIGSTOP)
            looks.append(name)
            seen = await watch.safely(name, glance)
            if len(looks) == 1:
                silenced(signal.SIGCONT)
            return seen

        async def answer() -> None:
            while True:
                try:
                    return await watch.server.ping()
                except ServerError:
                    if len(looks) > 1:
                        raise  # it is stopped; before that, the machine was stalled

        await watch.safely(NAMES[0], glance)
        with pytest.raises(ServerError):
            await health_sweep.in_earnest(NAMES[:1], noted, answer)

    watched(own_server, look)
    assert looks == NAMES[:1] * 2


def test_refused_ping_counts_as_an_answer(own_server: RedisServer):
    with own_server.client() as client:
        client.acl_setuser("looks", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-ping"])

    async def ask() -> None:
        known = DashboardServer("main", f"{own_server.url}?username=looks&password=x", "delayq")
        await known.ping()
        await known.close()

    asyncio.run(ask())


def test_named_queue_in_trouble_is_read_with_the_page(
    enter: Enter, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    for name in NAMES:
        Queue(name, redis=redis_client).send("hello", delay=86_400)
    troubled = Queue(NAMES[57], redis=redis_client)
    troubled.send("late", at=LONG_AGO, id="late")
    monkeypatch.setattr(health_sweep.HealthSweep, "ask", lambda _: None)
    client = enter(interval=0)
    client.get(f"/main/queues?start={NAMES[50]}")
    assert f"1 of 60 queues in trouble: {NAMES[57]} (no consumer, late)" in text_of(client.get("/").text)
    troubled.cancel("late")
    assert "60 queues, none in trouble" in text_of(client.get("/").text)


Halt = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def halt(own_server: RedisServer) -> Halt:
    """Stop the process of the server west for the length of a block."""

    @contextmanager
    def halted() -> Iterator[None]:
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(own_server.pid, signal.SIGCONT)

    return halted


@pytest.fixture
def client(
    enter: Enter, queue: Queue, redis_server: RedisServer, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser at a dashboard of two servers: main with the queue emails, and west with the queue orders."""
    monkeypatch.setattr(servers, "SILENCE_SECONDS", 4.0)
    queue.send("hello", delay=60)
    with Queue("orders", url=own_server.url) as orders:
        orders.send("hello", delay=60)
    patient = f"{own_server.url}?socket_timeout=900"  # only the dashboard's own time limit ends its requests
    return enter(servers={"main": redis_server.url, "west": patient})


@pytest.mark.full
def test_pages_report_a_silent_server_and_show_the_others(client: Client, halt: Halt):
    with halt():
        while "Waiting for the server" in (overview := client.get("/")).text:
            assert "/main/queues/emails" in overview.text
        page = client.get("/west/queues/orders")
    expected = "west has not answered for 4 s: check that the server runs"
    assert (overview.status_code, expected in overview.text, "/main/queues/emails" in overview.text) == (
        200,
        True,
        True,
    )
    assert (page.status_code, expected in page.text) == (503, True)
    while (page := client.get("/west/queues/orders")).status_code != 200:
        assert expected in page.text  # on a stalled machine, it is silent too


@pytest.mark.full
@pytest.mark.parametrize("path", ["queues/orders/pause", "queues/orders/confirm", "queues/orders/examine"])
def test_form_for_a_silent_server_is_refused_and_can_be_sent_again(client: Client, halt: Halt, path: str):
    with halt():
        answer = act(client, f"/west/{path}", act="purge", all="1", state="pending", once="1")
    assert (answer.status_code, "west has not answered for 4 s" in answer.text) == (503, True)
    assert "Send the form again" in answer.text


@pytest.mark.full
def test_form_refused_while_its_server_falls_silent_is_answered(
    client: Client, halt: Halt, monkeypatch: pytest.MonkeyPatch
):
    with ExitStack() as stack:

        async def silenced(*_: object) -> None:
            stack.enter_context(halt())
            raise InvalidInput("this is refused")

        token = token_on(client.get("/main/queues/emails").text)
        monkeypatch.setattr(path_params, "queue_of", silenced)
        answer = client.post("/west/queues/orders/examine", data={"csrf": token}, headers=OWN)
    assert (answer.status_code, "this is refused" in answer.text) == (400, True)


def test_slow_page_is_waited_for_while_the_server_answers(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "SILENCE_SECONDS", 0.01)
    answers = list[None]()

    async def run() -> str:
        server = DashboardServer("main", redis_server.url, "delayq")
        is_over = asyncio.Event()

        async def answer() -> None:
            answers.append(None)
            if len(answers) == 5:
                is_over.set()

        async def work() -> str:
            await is_over.wait()
            return "a page"

        monkeypatch.setattr(server, "ping", answer)
        return await server.while_it_answers(work())

    assert asyncio.run(run()) == "a page"
    assert len(answers) >= 5
