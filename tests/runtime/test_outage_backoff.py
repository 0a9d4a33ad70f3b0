"""What a consumer logs about a server that is unavailable, and about one that answers with an error."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from delayq import Consumer, Queue
from delayq.errors import (
    DelayqError,
    KeyOverwritten,
    LoginRefused,
    NoEmbeddedServer,
    ServerError,
    ServerNotReady,
    ServerOutOfMemory,
    ServerUnreachable,
)
from delayq.model.outage import FIRST_PAUSE, LONGEST_PAUSE, Outage
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

AWAY, BACK = "redis unavailable, retrying", "redis available again"
REFUSED, ALLOWED = "redis refused, retrying", "redis accepts again"
ANSWERS = [KeyOverwritten, LoginRefused, ServerOutOfMemory, ServerNotReady, ServerError]


class LoggedOutage:
    """An outage with its own clock: ``logged(error, None, …)`` returns what is logged for these steps, one a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.outage = Outage(lambda: self.now, queue="jobs")

    def __call__(self, *steps: type[DelayqError] | None) -> list[str]:
        with capture_logs() as lines:
            for error in steps:
                if error is None:
                    self.outage.served()
                else:
                    self.outage.lost(error("why"))
                self.now += 1
        return [line["event"] for line in lines]


@pytest.fixture
def logged() -> LoggedOutage:
    return LoggedOutage()


@pytest.mark.parametrize("error", [ServerUnreachable, NoEmbeddedServer])
def test_silent_server_is_unavailable_until_it_answers(logged: LoggedOutage, error: type[DelayqError]) -> None:
    assert logged(error, error, None, None) == [AWAY, BACK]
    logged.now += 60
    assert logged(error, None) == [AWAY, BACK]


@pytest.mark.parametrize("error", ANSWERS)
def test_server_that_answers_with_an_error_is_not_unavailable(logged: LoggedOutage, error: type[DelayqError]) -> None:
    assert logged(error, error, None, None) == [REFUSED, ALLOWED]


def test_server_that_loads_after_an_outage_is_still_unavailable(logged: LoggedOutage) -> None:
    assert logged(ServerUnreachable, ServerNotReady, None, ServerNotReady) == [AWAY, BACK, REFUSED]


def test_outage_that_begins_while_the_server_refuses_is_logged_at_once(logged: LoggedOutage) -> None:
    assert logged(KeyOverwritten, ServerUnreachable, None) == [REFUSED, AWAY, BACK]


@pytest.mark.parametrize(
    ("error", "lines"), [(ServerUnreachable, [AWAY, BACK]), *((error, [REFUSED, ALLOWED]) for error in ANSWERS)]
)
def test_intermittent_trouble_is_logged_once_a_minute(
    logged: LoggedOutage, error: type[DelayqError], lines: list[str]
) -> None:
    assert logged(*[error, None] * 90) == lines * 3


@pytest.mark.parametrize("error", [ServerUnreachable, KeyOverwritten])
def test_lasting_trouble_is_logged_once_a_minute(logged: LoggedOutage, error: type[DelayqError]) -> None:
    assert len(logged(*[error] * 180)) == 3


def test_pauses_grow_up_to_a_maximum_and_restart_after_a_success() -> None:
    outage = Outage()
    pauses = [outage.lost(KeyOverwritten("why")) for _ in range(6)]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE, LONGEST_PAUSE)
    assert pauses == sorted(pauses)
    outage.served()
    assert outage.lost(KeyOverwritten("why")) == FIRST_PAUSE


def test_consumer_logs_which_key_was_overwritten(redis_server: RedisServer) -> None:
    with redis_server.client() as client, Queue("jobs", url=redis_server.url) as queue, capture_logs() as lines:
        queue.send("x")
        client.set("delayq:{jobs}:unack", "another program's")
        consumer = Consumer(queue, lambda _: None)
        consumer.start()
        assert eventually(lambda: any(line["event"] == REFUSED for line in lines))
        client.delete("delayq:{jobs}:unack")
        assert eventually(lambda: consumer.handled == 1)
        consumer.stop()
    (refusal,) = (line for line in lines if line["event"] == REFUSED)
    assert "another program" in refusal["error"]
    assert AWAY not in [line["event"] for line in lines]
