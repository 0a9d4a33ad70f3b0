"""The relay's connection to a database: PostgreSQL by psycopg 3, SQLite by Python itself."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from delayq.errors import InvalidInput
from delayq.model.extras import install
from delayq.model.server_url import redact
from delayq.outbox.statements import CHANNEL, POSTGRESQL, SQLITE, Statements, pyformat

POLL_SECONDS = 1.0
"""Between two looks for rows, if nothing announces them."""

CONNECT_SECONDS = 5
BUSY_SECONDS = 30.0  # how long a write waits for another one on SQLite

KEEPALIVE: dict[str, Any] = {  # a connection that a firewall has cut is noticed within 20 s
    "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip

IDLE_SECONDS = 120
"""How long a transaction of the relay may do nothing before PostgreSQL ends it, so that another relay gets its rows. A
relay asks at least every 20 s, but for a send that Redis does not answer."""

_SETTINGS = {  # PostgreSQL's own view of the connection: it notices within 20 s that the host of a relay has died
    "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000", "idle_in_transaction_session_timeout": str(IDLE_SECONDS * 1000),
    "jit": "off",  # a statement that reads some hundred rows would take longer to compile than to run
}  # fmt: skip


class Database(Protocol):
    """What the relay needs of a database. It connects by itself, again after an error.

    Attributes:
        statements: for it.
        errors: what it raises if it is away, or a statement fails.
    """

    @property
    def statements(self) -> Statements: ...
    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def execute(self, statement: str, **parameters: Any) -> list[Any]:
        """Run a statement; return its rows, if it has any."""

    def locking(self) -> contextlib.AbstractContextManager[None]:
        """Keep the locks of rows until the block ends; what it has written is committed then."""

    def writing(self) -> contextlib.AbstractContextManager[None]:
        """Write several statements, all or none; within `locking`, also with those there."""

    def wait(self, seconds: float) -> None:
        """Wait until a row is announced, or for some seconds."""

    def limit(self, seconds: int) -> None:
        """Let a statement of this connection fail if it, or what it waits for, takes longer."""

    def close(self) -> None:
        """End the connection; the next statement makes another one."""


@contextmanager
def _transaction(database: Database, begin: str) -> Generator[None]:
    """Commit what the block has written, or roll it back if it raises."""
    database.execute(begin)
    try:
        yield
    except BaseException:
        with contextlib.suppress(*database.errors):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def clock(database: Database) -> int:
    """Return the database's time, ms."""
    [(now,)] = database.execute(f"SELECT {database.statements.now}")
    return int(now)


def open_database(url: str) -> Database:
    """Return a database for a `Relay`; it connects at its first statement.

    Args:
        url: as SQLAlchemy takes it: ``postgresql://user:password@host/name``, ``sqlite:///folder/file.db``. Names of
            drivers, such as ``postgresql+asyncpg``, are ignored.

    Raises:
        InvalidInput: the URL is of another kind, psycopg is missing, or another relay runs on the SQLite database.
    """
    scheme, separator, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    if separator and kind in SCHEMES:
        return SCHEMES[kind](rest)
    shown = redact(url) if separator else "it"
    raise InvalidInput(
        f"{shown} is not the URL of a database with an outbox: give postgresql://user:password@host/name or "
        "sqlite:///folder/file.db"
    )


class PostgreSQL:
    """A PostgreSQL database.

    Args:
        rest: of the URL, after ``://``.
        connect: returns a connection of psycopg instead.
    """

    statements = POSTGRESQL

    def __init__(self, rest: str, connect: Callable[[], Any] | None = None) -> None:
        try:
            import psycopg  # noqa: PLC0415  # of the extra
        except ImportError as error:
            raise InvalidInput(f"PostgreSQL needs psycopg 3: {install('outbox')}") from error
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self._connection: Any = None
        url = f"postgresql://{rest}"
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            raise InvalidInput(f"{redact(url)} is not a URL of PostgreSQL") from None
        if "@" in rest[re.search(r"[/?#]|$", rest).start() :]:  # type: ignore[union-attr]  # it would be shown as a host
            raise InvalidInput("the URL of PostgreSQL has an @ behind its host: write / ? # @ in a password as %2F …")
        self._connect = connect or partial(psycopg.connect, url, connect_timeout=CONNECT_SECONDS, **KEEPALIVE)

    def execute(self, statement: str, **parameters: Any) -> list[Any]:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.autocommit = True
            for name, value in _SETTINGS.items():
                self._connection.execute(f"SET {name} = {value}")
            self._connection.execute(f"LISTEN {CHANNEL}")
        cursor = self._connection.execute(pyformat(statement), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def locking(self) -> contextlib.AbstractContextManager[None]:
        return _transaction(self, "BEGIN ISOLATION LEVEL READ COMMITTED")

    @contextmanager
    def writing(self) -> Generator[None]:
        yield

    def wait(self, seconds: float) -> None:
        for _ in self._connection.notifies(timeout=seconds, stop_after=1):
            pass

    def limit(self, seconds: int) -> None:
        self.execute(f"SET statement_timeout = {seconds * 1000}")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class SQLite:
    """A SQLite database, on which one relay runs.

    Args:
        rest: of the URL, after ``://``: a slash, and the path.
    """

    statements = SQLITE
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, rest: str) -> None:
        path = unquote(rest.partition("?")[0].removeprefix("/"))
        if not path or path == ":memory:":
            raise InvalidInput(
                "a relay cannot reach an outbox in memory: give the URL of a file, sqlite:///folder/file.db"
            )
        self._path = Path(path).resolve()  # or the same file would have several locks
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None

    def execute(self, statement: str, **parameters: Any) -> list[Any]:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        return self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def locking(self) -> Generator[None]:
        if self._lock is None:
            self._lock = _lock(self._path)
        yield

    def writing(self) -> contextlib.AbstractContextManager[None]:
        return _transaction(self, "BEGIN IMMEDIATE")

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def limit(self, seconds: int) -> None:
        self.execute(f"PRAGMA busy_timeout = {seconds * 1000}")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        lock, self._lock = self._lock, None
        if connection is not None:
            connection.close()
        if lock is not None:
            os.close(lock)


def _lock(path: Path) -> int:
    """Let no other process run a relay on a SQLite database until the descriptor is closed.

    Raises:
        InvalidInput: one runs, or the lock's file, next to the database, cannot be written.
    """
    import fcntl  # noqa: PLC0415  # not on Windows

    try:
        file = os.open(f"{path}-relay", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"a relay writes {path}-relay, a lock: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise InvalidInput(f"another relay runs on {path}: a SQLite database has one") from None
    return file


SCHEMES: dict[str, Callable[[str], Database]] = {"postgresql": PostgreSQL, "postgres": PostgreSQL, "sqlite": SQLite}
"""What opens a database, by the first word of its URL."""
