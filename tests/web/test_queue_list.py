"""Servers with many queues: only the page is read, and queues in trouble are found on any page."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from html import unescape

import msgspec
import pytest
import redis

from delayq import Outgoing, Queue, aio
from delayq.aio.queue_names import NameSearch
from delayq.errors import LoginRefused, ServerUnreachable
from delayq.model.queue_stats import QueueStats
from delayq.model.totals import SeenQueue
from delayq.web import health_sweep, poller
from delayq.web.poller import ServerPoller
from delayq.web.queue_list import PAGE, NamePage, Order, QueueListView, SingleQueue
from delayq.web.servers import DashboardServer, KnownNames
from delayq.web.snapshot import QueueSnapshot, QueueWatcher
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.harness.web.following import holds
from tests.web.conftest import Enter, Follow, Serve
from tests.web.test_overview import text_of

MANY = 120
SCHEDULED = '<abbr title="New messages that are not due yet">Scheduled</abbr>'
NAMES = [f"queue-{number:03}" for number in range(MANY)]
LONG_AGO = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)


@pytest.fixture
def many(redis_client: redis.Redis) -> None:
    """Queues that each hold a message for tomorrow."""
    for name in NAMES:
        Queue(name, redis=redis_client).send("hello", delay=86_400)


def trouble(client: redis.Redis, name: str) -> None:
    Queue(name, redis=client).send("hello", at=LONG_AGO)


def rows(page: str) -> list[str]:
    return re.findall(r'<tr role="row" id="queue#main#([^"]+)"', page)


def link(page: str, title: str) -> str:
    """Return the target of a link on a page; '' if there is none."""
    found = re.search(rf'href="([^"]*)">{title}</a>', page)
    return found[1].replace("&amp;", "&") if found else ""


@pytest.mark.usefixtures("many")
def test_all_queues_are_listed_page_by_page_forwards_and_backwards(enter: Enter):
    client = enter()
    pages = [client.get("/").text]
    assert "1–50 of 120" in pages[0]
    while where := link(pages[-1], "Next"):
        pages.append(client.get(where).text)
    assert [rows(page) for page in pages] == [NAMES[:50], NAMES[50:100], NAMES[100:]]
    assert rows(client.get(link(pages[0], "Last")).text) == NAMES[100:]
    assert rows(client.get(link(pages[2], "Back")).text) == NAMES[50:100]
    assert rows(client.get(link(pages[2], "First")).text) == NAMES[:50]


@pytest.mark.usefixtures("many")
def test_queues_are_found_by_part_of_their_names_in_any_case(enter: Enter):
    client = enter()
    page = client.get("/?name=EUE-11").text
    assert rows(page) == NAMES[110:]
    assert 'value="EUE-11"' in page
    assert rows(client.get(link(page, "All queues")).text) == NAMES[:50]
    none = client.get("/?name=%3Cb%3E").text
    assert "No queue with “<b>” in its name." in none.replace("&lt;", "<").replace("&gt;", ">")
    assert "<b>" not in none


@pytest.mark.usefixtures("many")
def test_page_reads_its_own_queues_only(enter: Enter, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health_sweep.HealthSweep, "ask", lambda _: None)
    client, read = enter(), set[str]()
    look_at = ServerPoller.look_at

    async def noted(watch: ServerPoller, name: str, since: float) -> object:
        read.add(name)
        return await look_at(watch, name, since)

    monkeypatch.setattr(ServerPoller, "look_at", noted)
    redis_client.config_resetstat()
    client.get(f"/main/queues?start={NAMES[60]}")
    assert read == set(NAMES[60:110])
    calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    client.get(f"/main/queues?start={NAMES[115]}")
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls <= calls / 10


@pytest.mark.usefixtures("many")
def test_queue_in_trouble_is_named_on_each_page_and_listed_alone(enter: Enter, redis_client: redis.Redis):
    trouble(redis_client, NAMES[117])
    client = enter(interval=0)

    def overview() -> str:
        client.get("/?trouble=1")  # in this process, the round only runs during requests
        return text_of(client.get("/").text)

    assert eventually(lambda: f"1 of 120 queues in trouble: {NAMES[117]} (no consumer, late)" in overview())
    page = client.get(link(client.get("/").text, "Show it")).text
    assert rows(page) == [NAMES[117]]


def test_first_page_of_queues_in_trouble_waits_until_a_few_are_checked(
    enter: Enter, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(poller, "ROUND_WAIT", 60.0)
    for name in NAMES[:3]:
        trouble(redis_client, name)
    assert rows(enter().get("/?trouble=1").text) == NAMES[:3]


@pytest.mark.usefixtures("many")
def test_queues_of_a_server_are_sorted_by_a_column_over_all_pages(
    enter: Enter, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(poller, "ROUND_WAIT", 60.0)
    for count, name in ((1, NAMES[3]), (2, NAMES[117])):
        Queue(name, redis=redis_client).send_many([Outgoing(number, delay=86_400) for number in range(count)])
    client, others = enter(), [name for name in NAMES if name not in {NAMES[3], NAMES[117]}]
    page = client.get(link(client.get("/").text, SCHEDULED)).text
    assert rows(page) == [NAMES[117], NAMES[3], *others[:48]]
    assert 'aria-sort="descending"><a href="?sort=scheduled&amp;order=asc">' in page
    following = client.get("/main/queues" + link(page, "Next").removeprefix("/main/queues")).text
    assert rows(following) == others[48:98]
    assert rows(client.get(link(following, "Back")).text) == rows(page)
    assert rows(client.get(link(page, "Last")).text) == others[98:]
    least = client.get(link(page, SCHEDULED).replace("?", "/?")).text
    assert rows(client.get(link(least, "Last")).text)[-2:] == [NAMES[3], NAMES[117]]


@pytest.mark.usefixtures("many")
def test_links_keep_dense_rows_and_the_order(enter: Enter):
    client = enter()
    assert 'class="queues"' in client.get("/").text
    page = client.get("/" + link(client.get("/?sort=name&order=desc").text, "Dense")).text
    assert 'class="queues dense"' in page
    following = client.get(link(page, "Next")).text
    assert 'class="queues dense"' in following
    assert rows(following) == NAMES[69:19:-1]
    assert 'class="queues dense"' not in client.get("/main/queues" + link(following, "Roomy")).text


@pytest.mark.parametrize("path", ["/", "/main/queues", "/live", "/main/live"])
def test_unknown_order_is_refused_with_the_known_ones(enter: Enter, path: str):
    client = enter()
    answer = client.get(f"{path}?sort=size")
    assert answer.status_code == 400
    assert "unknown sort 'size'; expected one of name, scheduled, due" in unescape(answer.text)
    answer = client.get(f"{path}?sort=dead&order=up")
    assert answer.status_code == 400
    assert "unknown order 'up'; expected one of asc, desc" in unescape(answer.text)


@pytest.mark.parametrize(
    ("sort", "order", "names"), [("overdue", "desc", "dbac"), ("overdue", "asc", "bdac"), ("name", "desc", "dcba")]
)
def test_unknown_values_come_last_in_both_orders(sort: str, order: Order, names: str):
    stats, now = QueueStats(queue="q"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    known = {"a": None, "b": 1, "d": 60}
    due = {name: None if ago is None else now - dt.timedelta(seconds=ago) for name, ago in known.items()}
    found = {
        name: SeenQueue(stats=msgspec.structs.replace(stats, oldest_due_at=at)).figures for name, at in due.items()
    }
    view = QueueListView(sort=sort, order=order, rows=3)
    page = view.listed(list("abcd"), (), found)
    assert page == NamePage(names=tuple(names[:3]), matched=4, following="3", last="3")
    rest = msgspec.structs.replace(view, start="3").listed(list("abcd"), (), found)
    assert (rest.names, rest.first, rest.back) == (tuple(names[3:]), 3, "0")


@pytest.mark.usefixtures("many")
def test_totals_include_queues_of_other_pages(enter: Enter, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(poller, "ROUND_WAIT", 60.0)
    queue = Queue(NAMES[117], redis=redis_client)
    queue.send("hello")
    queue.receive(1)[0].reject("no")
    client = enter()
    client.get("/?trouble=1")  # this waits for all of them
    page = client.get("/").text
    assert NAMES[117] not in rows(page)
    assert "Queues 120 In/s 0 Out/s 0 Failed/s 0 Oldest due – Dead 1 Consumers 1 " in text_of(page)


@pytest.mark.full
@pytest.mark.usefixtures("many")
def test_queues_on_the_open_page_are_live(
    serve: Serve,
    follow: Follow,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(health_sweep, "ROUND_SECONDS", 0.1)
    url = serve()
    page = follow(f"{url}/main/live?start={NAMES[100]}")
    assert page.has_seen(NAMES[119])
    assert NAMES[99] not in page.text
    Queue(NAMES[119], redis=redis_client).send("hello", delay=86_400)
    assert page.has_seen('data-label="Scheduled">2<')
    trouble(redis_client, NAMES[3])
    assert page.has_seen(f"/main/queues/{NAMES[3]}")  # it is in trouble, on another page


def test_small_server_has_no_pages_and_no_filter(enter: Enter, queue: Queue):
    queue.send("hello", delay=60)
    page = enter().get("/").text
    assert "1 queue, none in trouble" in page
    assert 'role="search"' not in page
    assert "Pages of" not in page


@pytest.mark.full
def test_overview_of_several_servers_has_fewer_queues_of_each(
    enter: Enter, redis_server: RedisServer, redis_client: redis.Redis
):
    for name in NAMES[:30]:
        Queue(name, redis=redis_client).send("hello", delay=60)
    client = enter(servers={"main": redis_server.url, "away": "redis://127.0.0.1:1"})
    page = client.get("/").text
    assert rows(page) == NAMES[:25]
    assert rows(client.get(link(page, "Next")).text) == NAMES[25:30]


@pytest.mark.parametrize(
    ("view", "listing"),
    [
        (QueueListView(rows=3), NamePage(names=("a", "b", "c"), first=0, matched=8, following="d", last="g")),
        (
            QueueListView(rows=3, start="d"),
            NamePage(names=("d", "e", "f"), first=3, matched=8, back="a", following="g", last="g"),
        ),
        (
            QueueListView(rows=3, start="bb"),
            NamePage(names=("c", "d", "e"), first=2, matched=8, back="a", following="f", last="g"),
        ),
        (QueueListView(rows=3, start="g"), NamePage(names=("g", "h"), first=6, matched=8, back="d")),
        (QueueListView(rows=3, start="z"), NamePage(names=("h",), first=7, matched=8, back="e")),
        (QueueListView(rows=8), NamePage(names=tuple("abcdefgh"), matched=8)),
        (QueueListView(troubled=True), NamePage(names=("b", "g"), matched=2)),
        (QueueListView(troubled=True, name="G"), NamePage(names=("g",), matched=1)),
        (QueueListView(name="x"), NamePage()),
        (SingleQueue("new"), NamePage(names=("new",), matched=1)),
    ],
)
def test_page_starts_with_a_name_or_the_next_one(view: QueueListView | SingleQueue, listing: NamePage):
    assert view.listed(list("abcdefgh"), {"b", "g"}) == listing


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("", PAGE), ("25", 25), ("0", 10), ("-5", PAGE), ("999", PAGE), ("9" * 5000, PAGE), ("²", PAGE)],
)
def test_link_cannot_request_more_rows_than_a_page_has(asked: str, taken: int):
    assert QueueListView.of({"rows": asked}).rows == taken


def test_number_of_remembered_histories_is_limited(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(poller, "MOST_WATCHERS", 5)
    for name in NAMES[:9]:
        Queue(name, redis=redis_client).send("hello", delay=60)

    made = list[str]()

    def eye(queue: aio.Queue) -> QueueWatcher:
        made.append(queue.name)
        return QueueWatcher(queue)

    monkeypatch.setattr(poller, "QueueWatcher", eye)

    async def look() -> None:
        server = DashboardServer("main", redis_server.url, "delayq")
        watch = ServerPoller(server, 0)
        await watch.now(QueueListView())
        for name in (NAMES[8], NAMES[0]):
            await watch.now(SingleQueue(name))
        await watch.close()
        await server.close()

    asyncio.run(look())
    assert made == [*NAMES[:9], NAMES[0]]


def test_deleted_queue_is_forgotten(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.servers.SEARCH_SECONDS", -1.0)  # results expire at once
    for name in NAMES[:2]:
        Queue(name, redis=redis_client).send("hello", delay=60)

    async def look() -> list[bool]:
        server = DashboardServer("main", redis_server.url, "delayq")
        before = [await server.queue(name) for name in await server.queue_names()]
        redis_client.delete(*redis_client.keys(f"delayq:{{{NAMES[0]}}}*"))
        while await server.queue_names() != NAMES[1:2]:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0)
        kept = [await server.queue(queue.name) is queue for queue in before]
        await server.close()
        return kept

    assert asyncio.run(look()) == [False, True]


class Search(NameSearch):
    """A search in which each step does the next of `acts`, which may change `names`."""

    def __init__(self, *acts: Callable[[Search], Awaitable[None]]) -> None:
        self.names = {"queue": set(), "topic": set()}
        self.is_whole = self.rests = False
        self.acts = list(acts)

    async def steps(self) -> AsyncIterator[None]:
        while self.acts:
            act = self.acts.pop(0)
            await act(self)
            yield
        self.is_whole = True


async def queues_of(found: KnownNames) -> list[str]:
    return await found.known("queue")


def adds(name: str) -> Callable[[Search], Awaitable[None]]:
    async def add(search: Search) -> None:
        search.names["queue"].add(name)

    return add


def test_long_scan_delays_no_page_once_names_are_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.servers.SEARCH_SECONDS", -1.0)  # results expire at once

    async def search_twice() -> None:
        goes_on = asyncio.Event()

        async def waits(_: Search) -> None:
            await goes_on.wait()

        search = Search(adds("registered"), waits, adds("scanned"))
        found = KnownNames(search, lambda _: None)
        assert await queues_of(found) == await queues_of(found) == ["registered"]
        assert not found.is_whole
        goes_on.set()
        while await queues_of(found) != ["registered", "scanned"]:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0)
        goes_on.clear()
        search.acts = [waits]
        for _ in range(9):  # the next search
            assert await queues_of(found) == ["registered", "scanned"]
            await asyncio.sleep(0)
        await found.close()

    asyncio.run(search_twice())


def test_page_of_a_server_without_registry_waits_a_moment_for_a_long_scan(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]

    async def search() -> None:
        async def nothing(_: Search) -> None: ...

        async def late(search: Search) -> None:
            now[0] = 9.0
            await adds("second")(search)

        async def never(_: Search) -> None:
            await asyncio.Event().wait()

        found = KnownNames(Search(nothing, adds("first"), late, never), lambda _: None)
        assert (await queues_of(found), found.is_whole) == (["first", "second"], False)
        await found.close()

    monkeypatch.setattr("delayq.web.servers.time.monotonic", lambda: now[0])
    asyncio.run(search())


def test_failed_search_is_reported_and_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.servers.SEARCH_SECONDS", 1000.0)

    async def search_twice() -> None:
        async def fails(_: Search) -> None:
            raise ServerUnreachable("away")

        search = Search(fails, adds("one"))
        found = KnownNames(search, lambda _: None)
        with pytest.raises(ServerUnreachable, match="away"):
            await found.known("queue")
        assert await queues_of(found) == await queues_of(found) == ["one"]

    asyncio.run(search_twice())


def test_failed_scan_hides_no_names_of_the_registry():
    async def search() -> None:
        async def refused(_: Search) -> None:
            raise LoginRefused("no permission to run SCAN")

        found = KnownNames(Search(adds("one"), refused), lambda _: None)
        for _ in range(9):
            assert (await queues_of(found), found.is_whole) == (["one"], False)
            await asyncio.sleep(0)

    asyncio.run(search())


def test_kind_without_names_in_the_registry_is_waited_for():
    async def search() -> None:
        async def adds_topic(search: Search) -> None:
            search.names["topic"].add("orders")

        found = KnownNames(Search(adds("emails"), adds_topic), lambda _: None)
        queues, topics = await asyncio.gather(found.known("queue"), found.known("topic"))
        assert (queues, topics) == (["emails"], ["orders"])

    asyncio.run(search())


def test_whole_list_waits_for_the_scan_or_raises_its_error():
    async def search() -> None:
        async def refused(search: Search) -> None:
            assert not search.rests
            raise LoginRefused("no permission to run SCAN")

        scan = Search()
        found = KnownNames(scan, lambda _: None)
        for _ in range(2):
            scan.acts = [adds("one"), refused]
            with pytest.raises(LoginRefused):
                await found.whole()
            assert (await queues_of(found), str(found.error)) == (["one"], "no permission to run SCAN")
        scan.acts = [adds("two"), adds("three")]
        for _ in range(2):
            assert await found.whole() == {"queue": ["one", "three", "two"], "topic": []}
            assert (found.is_whole, found.error, scan.rests) == (True, None, True)

    asyncio.run(search())


def test_steps_that_find_nothing_leave_the_list_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.servers.SEARCH_SECONDS", -1.0)  # results expire at once

    async def search_twice() -> None:
        async def nothing(_: Search) -> None:
            await asyncio.sleep(0)

        search = Search(adds("one"))
        found = KnownNames(search, lambda _: None)
        await found.whole()
        search.acts = [nothing] * 20
        lists = [await found.known("queue")]
        while len(search.acts) > 1:
            lists.append(await found.known("queue"))
            await asyncio.sleep(0)
        assert len({id(each) for each in lists}) <= 2  # the registry was read once
        await found.close()

    asyncio.run(search_twice())


def test_round_mostly_rests_and_forgets_deleted_queues(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health_sweep, "ROUND_SECONDS", 0.0)
    names, rested = NAMES[:40], list[float]()
    sleep = asyncio.sleep

    async def go_round() -> None:
        async def known() -> list[str]:
            return names

        async def glance(name: str) -> QueueSnapshot:
            await sleep(0.001)
            return QueueSnapshot(name=name, stats=QueueStats(queue=name), error="no such luck")

        async def answer() -> None:
            pass

        async def resting(seconds: float) -> None:
            rested.extend([seconds] if seconds else [])
            await sleep(0)

        round_ = health_sweep.HealthSweep(known, glance, answer)
        monkeypatch.setattr(asyncio, "sleep", resting)
        round_.ask()
        await holds(lambda: round_.looked_at == len(names))
        assert min(rested) >= health_sweep.LEAST_REST * 0.001  # after each batch that took a millisecond
        del names[3:]
        await holds(lambda: round_.looked_at == len(names))
        assert round_.troubled == dict.fromkeys(names, ("unreadable",))
        await round_.close()

    asyncio.run(go_round())
