"""Cut the connection of a consumer at each kind of command: every message is still handled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from tests.harness.cutting.life import HANDLED, LAST, SENT, Life
from tests.harness.cutting.stage import At, Stage, by_url
from tests.harness.proxy import WAYS, Cut, Proxy
from tests.harness.servers import RedisServer, server_binaries

TRIES = 6  # of a run: a lease may end if the machine pauses
AT_ONCE = 10  # parallel runs: they wait more than they work
# The first time that a command of a kind is sent, and the second.
CUTS = [*((1, Cut(way)) for way in WAYS), (1, Cut("before", for_good=True)), (1, Cut("after", for_good=True))]
CUTS += [(2, Cut("after"))]
# What a run must contain; otherwise its matrix would show little.
DUTIES = {
    "open_queue": "begins",
    "pending_to_ready": "promotes",
    "ready_to_unack": "claims",
    "MGET": "fetches",
    "ack": "settles",
    "nack": "settles",
    "reject": "settles",
    "extend": "renews",
    "plan_sleep": "rests",
    "poll_idle": "rests",
    "BLPOP": "rests",
    "unack_to_retry": "keeps up",
    "ZRANGE": "keeps up",
    "delete_payloads": "keeps up",
    "purge": "keeps up",
    "release": "ends",
    "CLIENT UNBLOCK": "ends",
    "ring": "ends",
}


@pytest.fixture
def stages(default_version: str) -> Iterator[SimpleQueue[Stage]]:
    """One for each parallel run, each with its own server."""
    free: SimpleQueue[Stage] = SimpleQueue()
    with contextlib.ExitStack() as made:
        for _ in range(AT_ONCE):
            server = made.enter_context(contextlib.closing(RedisServer(server_binaries()[default_version])))
            proxy = made.enter_context(Proxy(server.socket))
            free.put(made.enter_context(contextlib.closing(Stage(server, proxy, by_url))))
        yield free


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits."""
    monkeypatch.setattr("delayq.runtime.engine.FALLBACK_MS", 50)
    monkeypatch.setattr("delayq.model.outage.FIRST_PAUSE", 0.02)
    monkeypatch.setattr("redis.retry.sleep", lambda _: None)


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_consumer_whose_connection_is_cut_anywhere_handles_every_message(stages: SimpleQueue[Stage]) -> None:
    names = names_of_a_life(stages)
    assert set(DUTIES) - names == set()

    def wrong(name: str, number: int, cut: Cut) -> str:
        trouble = ""
        for _ in range(TRIES):
            stage = stages.get()
            try:
                trouble = one_life(stage, At(name, number, cut))
            finally:
                stages.put(stage)
            if not trouble:
                return ""
        return f"{cut}, {name} {number}: {trouble}"

    matrix = [(name, *place) for name in sorted(names) for place in CUTS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [each for each in pool.map(lambda place: wrong(*place), matrix) if each] == []


def names_of_a_life(stages: SimpleQueue[Stage]) -> set[str]:
    """Return the commands of an uncut run, or of several together if a busy machine has skipped a duty in one."""
    names: set[str] = set()
    for _ in range(TRIES):
        stage = stages.get()
        Life(stage, lambda _: None).run()
        names.update(stage.proxy.passed)
        stages.put(stage)
        if names >= set(DUTIES):
            break
    return names


def one_life(stage: Stage, at: At) -> str:
    """Cut a run; return what went wrong, or nothing."""
    life = Life(stage, at)
    try:
        life.run()
        assert stage.proxy.cuts == 1 or at.number > 1, "was not reached"
        stage.assert_in_order()
        assert life.finished >= HANDLED
        assert life.begun.keys() <= SENT
        # No lease has ended: every message given to a handler was settled, and there are no duplicates.
        assert {id: count for id, count in life.begun.items() if count > 1 + (id == "fails")} == {}
        if at.name == "MGET":  # claimed messages are fetched once the connection is back, and no attempt is lost
            assert stage.direct.stats().lease_lost == 1
        seen = stage.seen()
        assert seen.places.keys() - {*LAST, "rejected", "old"} == set()  # old: it may be purged only in the next turn
        stage.assert_all_comes(seen)
    except Exception as error:  # noqa: BLE001  # try the other places too
        return f"{error!r:.500}"
    return ""
