"""A relay serves metrics and its health, as a consumer does."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from delayq.cli import relay_metrics

from delayq import Queue, outbox
from delayq.outbox import Relay
from tests.cli.conftest import Invoke, environment, invoke, server, start  # noqa: F401
from tests.harness.django_sites import postgresql
from tests.harness.scrapes import get
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.metrics.test_http_server import ANY, Serve, serve  # noqa: F401


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    """A database with an outbox."""
    made = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    outbox.metadata.create_all(made)
    return made


def write(engine: sa.Engine, payload: int) -> None:
    with engine.begin() as connection:
        outbox.send(connection, Queue("emails", url="redis://127.0.0.1:1"), payload)


def test_relay_serves_what_waits_what_it_has_done_and_its_health(
    serve: Serve,  # noqa: F811
    engine: sa.Engine,
    server: RedisServer,  # noqa: F811
):
    write(engine, 1)
    write(engine, 2)
    relay = serve("relay", str(engine.url), "--url", server.url, *ANY)
    assert eventually(lambda: relay.scrape().value("delayq_outbox_relayed_total") == 2)
    assert eventually(lambda: relay.scrape().value("delayq_outbox_rows", state="sent") == 0)
    scrape = relay.scrape()
    assert scrape.value("delayq_outbox_up") == 1
    assert scrape.value("delayq_outbox_refused_total") == 0
    assert scrape.value("delayq_outbox_lag_seconds") == 0
    assert "process_cpu_seconds_total" in scrape.names()
    assert (relay.status("/healthz"), relay.status("/readyz")) == (200, 200)
    server.kill()
    write(engine, 3)
    assert eventually(lambda: relay.status("/readyz") == 503)
    assert "Redis: " in get(f"{relay.url}/readyz")[1]
    assert relay.status("/healthz") == 200
    assert relay.scrape().value("delayq_outbox_rows", state="new") == 1
    server.start()
    assert eventually(lambda: relay.status("/readyz") == 200)
    outbox.metadata.drop_all(engine)
    assert eventually(lambda: relay.status("/readyz") == 503)
    assert "the database: " in get(f"{relay.url}/readyz")[1]
    assert relay.scrape().value("delayq_outbox_up") == 0
    assert relay.end() == 0
    engine.dispose()


def test_port_of_a_relay_in_use_is_reported(invoke: Invoke, engine: sa.Engine, server: RedisServer):  # noqa: F811
    result = invoke("relay", str(engine.url), "--burst", "--url", server.url, "--metrics-host", "0.0.0.0")
    assert (result.exit_code, "--metrics-host needs --metrics-port" in result.stderr) == (2, True)


@pytest.mark.full
def test_scrape_of_a_locked_table_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay_metrics, "SECONDS", 1)
    with postgresql() as folder:
        made = sa.create_engine(f"postgresql+psycopg://postgres@/postgres?host={folder}")
        outbox.metadata.create_all(made)
        url = made.url.render_as_string()
        runner = Relay(outbox.open_database(url), "embedded://")
        metrics = relay_metrics.RelayMetrics(url, runner)
        with made.begin() as connection:
            connection.execute(sa.text("LOCK TABLE delayq_outbox IN ACCESS EXCLUSIVE MODE"))
            assert b"delayq_outbox_up 0.0" in metrics.exposition().body
        assert b"delayq_outbox_up 1.0" in metrics.exposition().body
        made.dispose()


def test_scrape_does_not_wait_for_another_one_that_stands_still(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay_metrics, "SECONDS", 1)
    url = str(engine.url)
    metrics = relay_metrics.RelayMetrics(url, Relay(outbox.open_database(url), "embedded://"))
    with metrics._lock:
        assert b"delayq_outbox_up 0.0" in metrics.exposition().body
    assert b"delayq_outbox_up 1.0" in metrics.exposition().body
