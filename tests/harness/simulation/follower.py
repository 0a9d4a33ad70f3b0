"""Follows the calls to the server and its replies, and fails when a reply is wrong."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from delayq.errors import StaleReceipt
from delayq.model import outcome as oc
from tests.harness.model.watched import Watched
from tests.harness.simulation.fibers import Process
from tests.harness.simulation.lives import Life, Lives, Violation
from tests.harness.simulation.promptness import Promptness
from tests.harness.simulation.schedule import Schedule


class Follower:
    """One method per script: it derives the correct reply from the lives of the messages so far."""

    def __init__(self, schedule: Schedule, lives: Lives, promptness: Promptness) -> None:
        self._schedule = schedule
        self._lives = lives
        self._promptness = promptness
        self._watches: dict[str, Watched] = defaultdict(Watched)
        self._claims: dict[tuple[str, str], dict[str, list[Any]]] = {}  # replies by name, for a shard and a run

    def saw(self, process: Process, shard: str, name: str, argv: tuple[Any, ...], reply: Any) -> None:
        """Note a call that the server has answered.

        Args:
            argv: the ARGV of the script.
            reply: the raw reply; for a purge, the ids it has deleted.
        """
        follow = getattr(self, f"_{name}", None)
        if follow is not None:
            follow(process, shard, argv, reply)

    def refused(self, name: str) -> None:
        """Note a call that a full server has refused."""
        self._lives.counts[f"refused {name}"] += 1

    @property
    def _us(self) -> int:
        return self._schedule.server_us

    @property
    def _ms(self) -> int:
        return self._us // 1000

    @property
    def _latest_ms(self) -> int:
        """The latest time that the server has seen: messages due then may be handed out after its clock is set back."""
        return max(self._us, self._schedule.latest_us) // 1000

    def _check_due(self, life: Life, word: str | int) -> None:
        """Check that a delay is not cut short."""
        if life.due < self._due(word):
            raise Violation(f"{life.id} is due at {life.due}, earlier than asked for: {word}")

    def _send(self, _: Process, shard: str, argv: tuple[Any, ...], reply: list[int]) -> None:
        for number, due in enumerate(reply):
            id, word, envelope = argv[2 + 3 * number : 5 + 3 * number]
            if (due == -1) != (id in self._lives.present):
                raise Violation(f"send says {due} of {id}, which is {self._lives.present.get(id)}")
            if due != -1:
                self._check_due(self._lives.begin(shard, id, due, envelope), word)

    def _send_one(self, process: Process, shard: str, argv: tuple[Any, ...], reply: int) -> None:
        if reply != -1:  # otherwise `send` follows
            self._send(process, shard, (argv[0], "", *argv[1:]), [reply])

    def _replace(self, _: Process, shard: str, argv: tuple[Any, ...], reply: list[int]) -> None:
        _, id, word, envelope = argv
        due, is_new = reply
        if is_new != (id not in self._lives.present):
            raise Violation(f"replace says {is_new} of {id}, which is {self._lives.present.get(id)}")
        self._check_due(self._lives.begin(shard, id, due, envelope), word)

    def _ready_to_unack(self, process: Process, shard: str, argv: tuple[Any, ...], reply: list[Any]) -> None:
        now, micros, flat, deliveries, *_ = reply
        name = str(argv[4])
        claims = self._claims.setdefault((shard, name[:16]), {})
        if name in claims and (claims[name][2] or not flat):  # repeated; full memory keeps no empty reply
            if flat and claims[name] != reply:
                raise Violation(f"claim {name} was answered {claims[name]}, and again with {reply}")
            return
        if flat and any(each > name for each in claims):
            raise Violation(f"claim {name} has come too late, and is handed {flat}")
        if name:
            claims[name] = reply
        for number, (raw, due) in enumerate(zip(flat[::2], flat[1::2], strict=True)):
            life = self._lives.present.get(raw.decode())
            if life is None:
                raise Violation(f"{raw!r} is handed out, and was never stored, or is gone")
            stored = (deliveries[number] if deliveries else None) or b"0.0.0.0"
            receipt = f"{stored.decode()}-{micros}"
            if life.state != "waiting" or int(due) != life.due or self._latest_ms < life.due:
                raise Violation(f"early: {life} is handed out at {now}, due {due}")
            if stored.decode() != life.record or receipt in life.earlier.union(life.receipts):
                raise Violation(f"{life} is handed out under {receipt}, and not {life.record}")
            self._promptness.check_hand_out(life)
            self._lives.hand_out(life, process, receipt, self._us + int(argv[2]) * 1000)

    def _ours(self, process: Process, id: str, receipt: str, said: bool) -> Life | None:
        """Return the life that a receipt settles; the server must agree on whether there is one."""
        life = self._lives.present.get(id)
        right = life is not None and life.state == "running" and life.receipt == receipt
        if right != said:
            raise Violation(f"{process.name} was told {said} for {receipt} of {id}, which is {life}")
        self._lives.counts["stale"] += not right
        return life if right else None

    def _ack(self, process: Process, _: str, argv: tuple[Any, ...], reply: list[int]) -> None:
        count = len(reply)
        for id, receipt, said in zip(argv[1 : 1 + count], argv[1 + count :], reply, strict=True):
            if life := self._ours(process, id, receipt, bool(said)):
                self._lives.end(life, "acked")

    def _ack_then(self, process: Process, shard: str, argv: tuple[Any, ...], reply: Any) -> None:
        is_stale, follow = isinstance(reply, StaleReceipt), list(zip(argv[3::4], argv[4::4], argv[5::4], strict=True))
        if not is_stale and follow[0][0] in self._lives.present:  # an earlier copy of the call has run
            return
        if life := self._ours(process, argv[1], argv[2], not is_stale):
            self._lives.end(life, "acked")
            self._lives.counts["chained"] += len(follow)
            for id, word, envelope in follow:
                self._lives.begin(shard, id, self._due(word), envelope)

    def _nack(self, process: Process, _: str, argv: tuple[Any, ...], reply: Any) -> None:
        if life := self._ours(process, argv[1], argv[2], not isinstance(reply, StaleReceipt)):
            if life.next_attempt - 1 - life.attempts_reset >= life.max_retries:
                raise Violation(f"{life} is to be retried, and has no retry left")
            self._lives.wait(life, reply, counted=True)
            if life.state == "waiting":
                self._check_due(life, argv[3])

    def _release(self, process: Process, _: str, argv: tuple[Any, ...], reply: Any) -> None:
        if life := self._ours(process, argv[1], argv[2], not isinstance(reply, StaleReceipt)):
            begun = argv[5] == 1
            self._lives.wait(life, min(self._ms, int(argv[3])), counted=begun)
            life.attempts_reset += begun

    def _reject(self, process: Process, _: str, argv: tuple[Any, ...], reply: Any) -> None:
        life = self._ours(process, argv[1], argv[2], not isinstance(reply, StaleReceipt))
        if life is None:
            return
        used, (reason, _error, counted) = life.next_attempt - 1 - life.attempts_reset, argv[3:]
        least = {oc.REASON_EXHAUSTED: life.max_retries, oc.REASON_CONSUMER_LOST: life.max_retries + 1, "unwanted": 0}
        if used < least.get(reason, used + 1):
            raise Violation(f"{life} dies as {reason} after {used} attempts")
        self._lives.wait(life, 0, bool(counted))
        if life.state == "waiting":
            life.state = "dead"

    def _expire(self, process: Process, _: str, argv: tuple[Any, ...], reply: Any) -> None:
        if life := self._ours(process, argv[1], argv[2], not isinstance(reply, StaleReceipt)):
            if life.expires is None or self._latest_ms < life.expires:
                raise Violation(f"{life} is counted as expired")
            self._lives.end(life, "expired")

    def _extend(self, process: Process, _: str, argv: tuple[Any, ...], reply: Any) -> None:
        if life := self._ours(process, argv[1], argv[2], not isinstance(reply, StaleReceipt)):
            life.lease_end = reply * 1000 + int(life.receipt.split("-")[1])

    def looked(self, shard: str) -> None:
        """Note that an idle consumer has looked."""
        self._watches[shard].look(self._ms, True)

    def _unack_to_retry(self, _: Process, shard: str, argv: tuple[Any, ...], reply: list[int]) -> None:
        watch = self._watches[shard]
        ended, grace = watch.look(self._ms, argv[3] == 1)
        if reply[1:3] != [self._ms, grace]:
            raise Violation(f"the grace is {reply[2]} at {reply[1]}, and not {grace} at {self._ms}")
        running = [life for life in self._lives.present.values() if (life.state, life.shard) == ("running", shard)]
        lost = [life for life in running if life.lease_end <= ended * 1000]
        if len(lost) != reply[0]:
            raise Violation(f"{reply[0]} deliveries were taken back, and not {lost}")
        for life in lost:
            assert life.holder is not None
            self._promptness.check_recovery(life, watch.counts(life.lease_end // 1000) * 1000)
            if not life.holder.had_trouble(life.handed, self._schedule.us):
                raise Violation(f"{life.holder.name} has lost its lease of {life}, though nothing has happened to it")
            self._lives.wait(life, life.lease_end // 1000, counted=True)
            life.available = watch.counts(life.lease_end // 1000)
            life.lost += 1
            self._lives.counts["lease lost"] += 1

    def _cancel(self, _: Process, __: str, argv: tuple[Any, ...], reply: bytes) -> None:
        life = self._lives.present.get(argv[1])
        expected = b"unknown" if life is None else b"in_flight" if life.state == "running" else b"cancelled"
        if reply != expected:
            raise Violation(f"cancel says {reply!r} of {life}")
        if life is not None and reply == b"in_flight":
            life.is_cancelled = True
        elif life is not None:
            self._lives.end(life, "cancelled")

    def _reschedule(self, _: Process, __: str, argv: tuple[Any, ...], reply: bytes) -> None:
        life = self._lives.present.get(argv[1])
        states = {"waiting": b"rescheduled", "running": b"in_flight", "dead": b"dead"}
        if reply != (b"unknown" if life is None else states[life.state]):
            raise Violation(f"reschedule says {reply!r} of {life}")
        if life is not None and reply == b"rescheduled":
            life.due = self._due(argv[2])

    def _requeue(self, _: Process, __: str, argv: tuple[Any, ...], reply: list[int]) -> None:
        for id, said in zip(argv[3:], reply, strict=True):
            life = self._lives.present.get(id)
            dead = life is not None and life.state == "dead"
            if (said and not dead) or (dead and not said and argv[2] == ""):  # otherwise it may have died since
                raise Violation(f"requeue says {said} of {life}")
            if said and life is not None:
                life.state, life.due = "waiting", self._due(argv[1])
                life.attempts_reset, life.lost = life.next_attempt - 1, 0

    def _purge(self, _: Process, __: str, ___: tuple[Any, ...], ids: list[bytes]) -> None:
        for id in ids:
            self._lives.end(self._lives.present[id.decode()], "purged")

    def _due(self, word: str | int) -> int:
        """Return the time meant by an argument of a call: not earlier than asked for, and a whole millisecond."""
        if isinstance(word, int) or int(word) == 0:
            return self._ms + int(word) if isinstance(word, str) else word
        return -(-self._us // 1000) + int(word)

    def _pause(self, _: Process, shard: str, __: tuple[Any, ...], ___: int) -> None:
        self._promptness.pause(shard)

    def _resume(self, _: Process, shard: str, __: tuple[Any, ...], ___: int) -> None:
        self._promptness.resume(shard)
