"""Databases with an outbox: SQLite for each test, and PostgreSQL, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from delayq import outbox
from tests.harness.django_sites import postgresql


class Shop(NamedTuple):
    """A database with an outbox, and a table of its application."""

    url: str
    engine: sa.Engine

    @property
    def rows(self) -> int:
        """How many rows its outbox has."""
        with self.engine.connect() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(outbox.table)) or 0

    @property
    def states(self) -> list[str]:
        """The states of its rows, in order."""
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.select(outbox.table.c.state).order_by(outbox.table.c.seq)))


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    """The folder of the socket of a PostgreSQL server."""
    with postgresql() as folder:
        yield folder


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A database with an empty outbox; each test runs on both kinds."""
    url = f"sqlite:///{tmp_path}/shop.db"
    if request.param == "postgresql":
        url = postgresql_url(request.getfixturevalue("socket"))
    yield from made(url)


@pytest.fixture
def postgresql_shop(socket: Path) -> Iterator[Shop]:
    """One on PostgreSQL."""
    yield from made(postgresql_url(socket))


def postgresql_url(socket: Path) -> str:
    return f"postgresql+psycopg://postgres@/postgres?host={socket}"


def made(url: str) -> Iterator[Shop]:
    engine = sa.create_engine(url)
    outbox.metadata.drop_all(engine)
    outbox.metadata.create_all(engine)
    yield Shop(url, engine)
    engine.dispose()
