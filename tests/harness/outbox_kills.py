"""Relays, Redis and PostgreSQL killed by turns while an application writes into its outbox.

A relay is also stopped for two rounds, longer than PostgreSQL keeps its session, and all sessions are ended.

    python -m tests.harness.outbox_kills --transactions 100000

Redis has appendfsync always and everysec by turns. A tenth of the transactions is rolled back. Those that were
committed are known from a table that they write, too, as the answer to a commit may be lost. At the end, each of their
messages must have been created once and no other, as the queues' own counts say, and those of a transaction must be in
their order.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from delayq import DelayqError, Outgoing, Queue, outbox
from tests.harness.django_sites import postgresql_programs, run
from tests.harness.servers import RedisServer, server_binaries
from tests.harness.tree import ROOT

QUEUES = ("one", "two")
ROLLED_BACK = 10  # each n-th transaction
MOST_ROWS = 4
RELAYS = 3
VICTIMS = ("relay", "redis", "database", "stopped relay", "sessions")
WRITERS = 4
orders = sa.Table(
    "orders", sa.MetaData(), sa.Column("number", sa.Integer, primary_key=True), sa.Column("rows", sa.Text)
)


class KillablePostgreSQL:
    """PostgreSQL that keeps what was committed when it is killed, and can be started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dqkill"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            shutil.chown(self.folder, "nobody", "nogroup")
        self._programs = postgresql_programs()
        self._env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        initdb = [
            str(self._programs / "initdb"),
            "-D",
            f"{self.folder}/data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
        ]
        run(*self._as_user, *initdb, env=self._env, cwd=self.folder)
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it has recovered."""
        # The kernel outlives the kill: nothing needs to reach the disk, but each commit has to reach the kernel.
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "synchronous_commit=on"]
        command = [
            *self._as_user,
            str(self._programs / "postgres"),
            "-D",
            f"{self.folder}/data",
            "-k",
            str(self.folder),
        ]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, env=self._env, cwd=self.folder
            )
        ready = [str(self._programs / "pg_isready"), "-h", str(self.folder), "-q"]
        while subprocess.run(ready, check=False, env=self._env).returncode:
            assert self._server.poll() is None, (self.folder / "log").read_text()[-4000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """End it and all sessions at once, without writing anything."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(60)

    def close(self) -> None:
        """End it, and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Relays:
    """Relays as processes of the command line."""

    def __init__(self, database: str, server: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "delayq", "relay", database, "--url", server]
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = [self._start() for _ in range(RELAYS)]

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, cwd=ROOT)

    def kill(self) -> None:
        """Kill one of them, and start another one."""
        number = random.randrange(RELAYS)
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start()

    def stop(self) -> None:
        """Let one of them stand still until `resume`."""
        self._processes[random.randrange(RELAYS)].send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for each in self._processes:
            each.send_signal(signal.SIGCONT)

    def supervise(self) -> None:
        """Start those again that have found no database at their start."""
        for number, each in enumerate(self._processes):
            if each.poll() is not None:
                assert each.returncode == 1, self._log.read_text()[-4000:]
                self._processes[number] = self._start()

    def close(self) -> None:
        """End them."""
        self.resume()
        for each in self._processes:
            each.terminate()
        for each in self._processes:
            each.wait(60)


class Application:
    """Writes transactions with messages from several threads."""

    def __init__(self, url: str, transactions: int) -> None:
        self._engine = sa.create_engine(url, pool_size=WRITERS + 2)
        self._numbers: Iterator[int] = iter(range(transactions))
        self._lock = threading.Lock()
        self._queues = [Queue(name, url="redis://127.0.0.1:1", max_retries=1000) for name in QUEUES]
        self.failed = 0
        self.threads = [threading.Thread(target=self._write) for _ in range(WRITERS)]

    def create(self) -> None:
        """Create the tables."""
        outbox.metadata.create_all(self._engine)
        orders.metadata.create_all(self._engine)

    def _write(self) -> None:
        chance = random.Random()
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            try:
                self._write_one(number, [chance.randrange(len(QUEUES)) for _ in range(chance.randint(1, MOST_ROWS))])
            except sa.exc.DBAPIError:  # perhaps it was committed; the table `orders` says it
                with self._lock:
                    self.failed += 1
                time.sleep(0.05)

    def _write_one(self, number: int, targets: list[int]) -> None:
        with self._engine.connect() as connection:
            connection.execute(sa.insert(orders).values(number=number, rows=json.dumps(targets)))
            for target, queue in enumerate(self._queues):
                places = [place for place, each in enumerate(targets) if each == target]
                outbox.send_many(connection, queue, [Outgoing([number, place]) for place in places])
            if number % ROLLED_BACK == 0:
                connection.rollback()
            else:
                connection.commit()

    def end_sessions(self) -> None:
        """End all sessions but this one: those of relays, and its own others."""
        with contextlib.suppress(sa.exc.DBAPIError), self._engine.connect() as connection:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(sa.text(f"{ended} AND backend_type = 'client backend'"))

    def stop(self) -> None:
        """Write no more."""
        with self._lock:
            self._numbers = iter(())

    def expected(self) -> dict[str, dict[int, list[int]]]:
        """The places of the messages of committed transactions, by queue and number."""
        found: dict[str, dict[int, list[int]]] = {name: {} for name in QUEUES}
        with self._engine.connect() as connection:
            for number, rows in connection.execute(sa.select(orders)):
                for place, target in enumerate(json.loads(rows)):
                    found[QUEUES[target]].setdefault(number, []).append(place)
        return found

    def left(self) -> int:
        """How many rows the outbox still has."""
        with self._engine.connect() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(outbox.table)) or 0

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()


class Consumers:
    """Takes and acks messages of all queues, on a thread each, and notes what came, with its place in the queue.

    Attributes:
        seen: by queue and payload, the attempt, the due time and the id of the first delivery that came. Its attempt
            is not the first if the reply to a claim was lost, and the lease ended before the server was back.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.seen: dict[str, dict[tuple[int, int], tuple[int, Any, str]]] = {name: {} for name in QUEUES}
        self.again: Counter[str] = Counter()
        self.threads = [threading.Thread(target=self._take, args=(name,)) for name in QUEUES]

    def start(self) -> None:
        for each in self.threads:
            each.start()

    def _take(self, name: str) -> None:
        seen = self.seen[name]
        with Queue(name, url=self._url, lease=5) as queue:
            while not self._stop.is_set():
                try:
                    messages = queue.receive(max_messages=100, wait=0.5)
                    for message in messages:
                        key = tuple(message.payload)
                        if key in seen:
                            self.again[name] += 1
                        else:
                            seen[key] = message.attempt, message.due_at, message.id
                    if messages:
                        queue.ack(messages)
                except DelayqError:
                    time.sleep(0.1)

    def close(self) -> None:
        self._stop.set()
        for each in self.threads:
            each.join()


def run_kills(transactions: int, kill_every: float, seconds: float = math.inf) -> dict[str, Any]:
    """Run it until all transactions are written, or for some seconds, and return the figures."""
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        database = KillablePostgreSQL()
        stack.callback(database.close)
        server = RedisServer(newest(), appendonly=True, config={"appendfsync": "always"})
        stack.callback(server.close)
        application = Application(database.url, transactions)
        stack.callback(application.close)
        application.create()
        relays = Relays(database.url, server.url, database.folder / "relays")
        stack.callback(relays.close)
        consumers = Consumers(server.url)
        stack.callback(consumers.close)
        consumers.start()
        for each in application.threads:
            each.start()
        kills: Counter[str] = Counter()
        while any(each.is_alive() for each in application.threads):
            time.sleep(kill_every)
            victim = VICTIMS[kills.total() % len(VICTIMS)]
            kills[victim] += 1
            if victim == "relay":
                relays.kill()
            elif victim == "stopped relay":
                if kills[victim] % 3 == 1:
                    relays.stop()
                elif kills[victim] % 3 == 0:
                    relays.resume()
            elif victim == "sessions":
                application.end_sessions()
            else:
                killed = server if victim == "redis" else database
                killed.kill()
                server._settings["appendfsync"] = ("always", "everysec")[kills["redis"] % 2]
                time.sleep(random.uniform(0, 1))
                killed.start()
            relays.supervise()
            if time.monotonic() - began > seconds:
                application.stop()
        relays.resume()
        application.close()  # the last kill may have cut its connections
        wait_until_empty(application, relays)
        expected = application.expected()
        found = judge(server, expected, consumers)
        rows = sum(len(places) for by_number in expected.values() for places in by_number.values())
        committed = len({number for by_number in expected.values() for number in by_number})
        log = (database.folder / "relays").read_text()
    return {
        "transactions": transactions, "committed": committed, "rows": rows, "kills": dict(kills), **found,
        "failed_commits": application.failed, "sent_again": log.count("outbox rows sent again"),
        "delivered_again": dict(consumers.again), "seconds": round(time.monotonic() - began),
    }  # fmt: skip


def wait_until_empty(application: Application, relays: Relays) -> None:
    """Wait until the relays have brought everything into Redis, and know that it is safe."""
    deadline = time.monotonic() + 600
    while application.left():
        assert time.monotonic() < deadline, f"{application.left()} rows are left"
        relays.supervise()
        time.sleep(0.2)


def judge(
    server: RedisServer, expected: dict[str, dict[int, list[int]]], consumers: Consumers
) -> dict[str, dict[str, int]]:
    """Compare what came with what was committed."""
    found: dict[str, dict[str, int]] = {}
    for name, by_number in expected.items():
        wanted = {(number, place) for number, places in by_number.items() for place in places}
        deadline = time.monotonic() + 600
        with Queue(name, url=server.url) as queue:
            while (stats := queue.stats()).acked < stats.sent:
                assert time.monotonic() < deadline, stats
                time.sleep(0.2)
            stats = queue.stats()
        seen = consumers.seen[name]
        at_first = {key: place for key, place in seen.items() if place[0] == 1}  # a retry is due later
        misplaced = 0
        for number, places in by_number.items():
            came = [place for place in places if (number, place) in at_first]
            misplaced += sorted(came, key=lambda place: at_first[number, place]) != came
        found[name] = {
            "created": stats.sent,
            "lost": len(wanted - seen.keys()),
            "of_rolled_back": len(seen.keys() - wanted),
            "doubled": stats.sent - len(wanted),
            "out_of_order": misplaced,
            "retried_first": len(seen) - len(at_first),
        }
    return found


def newest() -> Path:
    """Return the server that tests run on."""
    return next(reversed(server_binaries().values()))


def faults(figures: dict[str, Any]) -> Iterator[str]:
    """Yield what must not be."""
    for name in QUEUES:
        for what in ("lost", "of_rolled_back", "doubled", "out_of_order"):
            if figures[name][what]:
                yield f"{name}: {what} {figures[name][what]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--kill-every", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop writing after this long")
    given = parser.parse_args()
    figures = run_kills(given.transactions, given.kill_every, given.seconds)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    sys.exit("; ".join(faults(figures)) or 0)


if __name__ == "__main__":
    main()
