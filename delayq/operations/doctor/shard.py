"""The examination of one shard.

Messages move during the examination. So a page only says which messages look odd; each of those is read again by
`get`, at one instant, and twice, before it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.errors import UnreadableEnvelope
from delayq.model.envelope import group_of, parse
from delayq.model.message_group import read_group
from delayq.model.placement import STATES, WAITING, State
from delayq.model.queue_stats import Counts, QueueStats
from delayq.model.schedule import LATE_MS
from delayq.model.show import plural, show_duration
from delayq.model.text import decode_id, decode_text, encode_id, is_foreign_id, printable_id
from delayq.model.units import MAX_LEASE_MS, MAX_TIME_MS
from delayq.operations import scan
from delayq.operations.doctor.finding import ATTEMPTS, CLOCK_STEP_MS, Finding, ailments, is_time
from delayq.operations.doctor.report import Report
from delayq.operations.doctor.schedules import look_at_schedules
from delayq.operations.groups import mend
from delayq.operations.queue_context import QueueContext
from delayq.operations.schedule_chain import home
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

NEARLY_FULL = 0.9  # of `max_length`
OVERDUE_MS = 5000  # a consumer takes what is due within a second, even when its bell was lost
FINDS = 50  # per round trip: each may bring a payload of 1 MiB

HOLDING: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead", "held")
# What is kept beside the structures, how to read it, and in which states a message may have it.
KNOWLEDGE: tuple[tuple[str, str, tuple[State, ...]], ...] = (
    ("attempts", "HSCAN", HOLDING),
    ("errors", "HSCAN", HOLDING),
    ("reasons", "HSCAN", ("dead",)),
    ("cancelled", "SSCAN", ("unack",)),
)
TYPES: dict[str, str] = {
    **dict.fromkeys(STATES, "zset"),
    **dict.fromkeys(("attempts", "errors", "reasons", "stats", "schedules", "parked", "reports", "watch"), "hash"),
    **dict.fromkeys(("members", "groups", "rosters"), "hash"),
    **dict.fromkeys(("armed", "rate", "replaced", "slots", "stops", "waiting", "consumers"), "zset"),
    "cancelled": "set",
    "bell": "list",
    **dict.fromkeys(("timer", "removed"), "string"),
    **dict.fromkeys(("events", "samples_minute", "samples_ten"), "stream"),
}


class ShardExamination:
    """Checks one shard and adds to the report.

    It has three parts: `begin`, then a scan of the server's keys for `looks`, which several examinations share, and
    `finish`.

    Args:
        where: the prefix of its steps.
        server: what tells the server of this shard from others.
    """

    def __init__(
        self, context: QueueContext, scripts: QueueCommands, report: Report, repair: bool, where: str, server: str
    ) -> None:
        self.context = context
        self.scripts = scripts
        self.report = report
        self.repair = repair
        self.where = where
        self.server = server
        self.now_ms = 0
        self.judged: set[object] = set()

    def begin(self) -> Operation[bool]:
        """Check the structures; return False if they cannot be checked."""
        if not (yield from self.types_fit()):
            return False
        if self.repair:
            yield from self.mend_groups()
        self.now_ms = (yield from execute(self.scripts.stats())).now_ms
        for state in STATES:
            self.report.say(f"{self.where}looking at {state}")
            key = self.scripts.keys.state(state)
            yield from scan.structure("ZSCAN", key, partial(self.look_at_messages, state))
        for name, command, states in KNOWLEDGE:
            self.report.say(f"{self.where}looking at {name}")
            key = getattr(self.scripts.keys, name)
            yield from scan.structure(command, key, partial(self.look_at_knowledge, name, states))
        self.report.say(f"{self.where}looking at reserved ids, and for payloads without a message")
        return True

    def mend_groups(self) -> Operation[None]:
        """Mend what can be mended of groups, as consumers do every half minute."""
        self.report.say(f"{self.where}looking at groups")
        members, groups = yield from mend(self.scripts)
        if members or groups:
            what = f"{self.where}what was stored of {plural(members, 'member')} and {plural(groups, 'group')} was wrong"
            remedy = "corrected: another program had changed it, or an older delayq had settled members"
            self.report.tell(Finding("group", None, what, remedy, repaired=True))

    def looks(self) -> dict[str, scan.Look]:
        """Return what checks the ids in keys, by what the keys begin with."""
        keys = self.scripts.keys
        return {keys.message_prefix: self.look_at_payloads, keys.unique_prefix: self.look_at_reservations}

    def finish(self) -> Operation[None]:
        """Check times, counts and schedules."""
        self.report.say(f"{self.where}looking at times and counts")
        yield from self.look_at_times()
        yield from self.look_at_books()
        if len(self.context.shards) == 1:  # a queue with more has no limits
            yield from self.look_at_length()
        if self.scripts is home(self.context):
            yield from look_at_schedules(self.context, self.report, self.repair)

    def types_fit(self) -> Operation[bool]:
        """Return whether each key has the right type: otherwise no script can run on it."""
        keys = {name: str(getattr(self.scripts.keys, name)) for name in TYPES}
        found = yield [Command(key, ("TYPE", key), decode_text) for key in keys.values()]
        fit = True
        for (name, key), kind in zip(keys.items(), found, strict=True):
            if kind not in (TYPES[name], "none"):
                fit = False
                what = f"{key} is a {kind}, not a {TYPES[name]}: no script can use it"
                self.report.tell(Finding("type", None, what, "move it away: another program has put it there"))
        return fit

    def look_at_messages(self, state: State, items: dict[bytes, Any]) -> Operation[None]:
        """Check a page of a state: ids and scores."""
        scores = {decode_id(raw): score for raw, score in items.items()}
        self.report.messages += len(scores)
        self.report.say(f"{self.where}looking at {state}")
        odd = [message_id for message_id, score in scores.items() if not is_time(state, float(score), self.now_ms)]
        odd += filter(is_foreign_id, scores)
        if others := STATES[STATES.index(state) + 1 :]:
            odd += yield from scan.in_any(self.scripts, list(scores), others)
        if state != "garbage":
            odd += yield from self.without_payload(state, scores)
        self.look_at_shards(state, scores)
        yield from self.judge(odd)

    def without_payload(self, state: State, ids: Iterable[str]) -> Operation[list[str]]:
        """Return the ids whose payload is gone or unreadable."""
        sizes = yield from scan.sizes(self.scripts, ids)
        odd = [message_id for message_id, size in sizes.items() if not size]
        while state in WAITING and sizes:
            stored = yield from scan.envelopes(self.scripts, sizes)
            odd += [message_id for message_id, envelope in stored.items() if not _is_readable(envelope)]
            if state == "held":
                yield from self.look_at_held(stored)
        return odd

    def look_at_held(self, stored: dict[str, bytes]) -> Operation[None]:
        """Report the messages whose groups are unknown, or have lost members that they count, at two instants."""
        waits = {each: _group_of(envelope) for each, envelope in stored.items() if _is_readable(envelope)}
        for _ in range(2):
            waits = yield from self.without_group(waits)
        for message_id in (yield from scan.in_any(self.scripts, list(waits), ["held"])):
            what = f"waits for group {printable_id(waits[message_id]) or 'unknown'}, whose data is lost"
            remedy = (
                "a consumer restores it within a minute if it can; if this stays, reschedule the message to run it "
                "without waiting, or cancel it"
            )
            self.report.tell(Finding("group", message_id, what, remedy))

    def without_group(self, waits: dict[str, str]) -> Operation[dict[str, str]]:
        """Return those held messages whose groups do not say which members have not ended."""
        left, ids = dict(waits), list(waits)
        for start in range(0, len(ids), FINDS):
            chunk = ids[start : start + FINDS]
            found: list[Any] = yield [self.scripts.group(waits[each]) for each in chunk]
            for message_id, each in zip(chunk, map(unwrap, found), strict=True):
                group = each and read_group(waits[message_id], each.record, each.dead)
                if group is not None and group.then == message_id and 0 < group.left == len(each.left):
                    del left[message_id]
        return left

    def look_at_shards(self, state: State, ids: Iterable[str]) -> None:
        for message_id in ids:
            if is_foreign_id(message_id):  # a claim moves it to the dead letters of its shard
                continue
            if self.context.shard(message_id) is not self.scripts and ("shard", message_id) not in self.judged:
                self.judged.add(("shard", message_id))
                what = f"is in {state} of the wrong shard: no client can settle it"
                remedy = (
                    "check the recorded number of shards; if it is right, send the message again and remove it there"
                )
                self.report.tell(Finding("shard", message_id, what, remedy))

    def look_at_knowledge(self, name: str, states: tuple[State, ...], items: dict[bytes, Any]) -> Operation[None]:
        """Check a page of attempts, errors, reasons or cancellations: may the messages have them?"""
        values = {decode_id(raw): value for raw, value in items.items()}
        there = yield from scan.in_any(self.scripts, list(values), states)
        odd = self.own(name, [message_id for message_id in values if message_id not in there])
        if name == "attempts":
            odd += [each for each, value in values.items() if not ATTEMPTS.fullmatch(value.decode(errors="replace"))]
        yield from self.judge(odd)

    def look_at_payloads(self, items: dict[bytes, Any]) -> Operation[None]:
        """Check a page of the ids that have a payload: is each in a structure?"""
        ids = list(map(decode_id, items))
        there = yield from scan.in_any(self.scripts, ids, STATES)
        yield from self.judge(self.own("msg", [message_id for message_id in ids if message_id not in there]))

    def look_at_reservations(self, items: dict[bytes, Any]) -> Operation[None]:
        """Check the types of a page of reserved ids; their messages may be long gone."""
        keys = [self.scripts.keys.unique(decode_id(raw)) for raw in items]
        for key, kind in zip(
            keys, (yield [Command(key, ("TYPE", encode_id(key)), decode_text) for key in keys]), strict=True
        ):
            if unwrap(kind) not in ("string", "none") and ("unique", key) not in self.judged:
                self.judged.add(("unique", key))
                what = f"{printable_id(key)} is a {kind}, not a string: its id cannot be reserved"
                self.report.tell(Finding("type", None, what, "move it away: another program has put it there"))

    def own(self, name: str, strays: Iterable[str]) -> list[str]:
        """Return the strays that may once have belonged to a message; report the others."""
        own = []
        for message_id in strays:
            if not is_foreign_id(message_id):
                own.append(message_id)
            elif (name, message_id) not in self.judged:
                self.judged.add((name, message_id))
                what = (
                    f"{self.scripts.keys.message_prefix[:-4]}{name} holds {encode_id(message_id)!r}, which is not an id"
                )
                self.report.tell(Finding("id", None, what, "remove it: another program has put it there"))
        return own

    def judge(self, odd: Iterable[str]) -> Operation[None]:
        """Report what is wrong at two instants with messages that looked odd."""
        ids = [message_id for message_id in dict.fromkeys(odd) if message_id not in self.judged]
        for start in range(0, len(ids), FINDS):
            first = yield from self.wrong(ids[start : start + FINDS])
            second = yield from self.wrong(first)
            for message_id, findings in second.items():
                kinds = {finding.kind for finding in first[message_id]}
                yield from self.conclude(message_id, [finding for finding in findings if finding.kind in kinds])

    def wrong(self, ids: Iterable[str]) -> Operation[dict[str, list[Finding]]]:
        """Return what is wrong with messages; those without a finding are left out."""
        ids = list(ids)
        if not ids:
            return {}
        results = yield [self.scripts.stats(), *map(self.scripts.get, ids)]
        now, *found = map(unwrap, results)
        all_findings = {each: list(ailments(each, known, now.now_ms)) for each, known in zip(ids, found, strict=True)}
        return {message_id: findings for message_id, findings in all_findings.items() if findings}

    def conclude(self, message_id: str, findings: list[Finding]) -> Operation[None]:
        """Report findings about a message, after a repair if one was asked for."""
        self.judged.add(message_id)
        if self.repair and findings:
            call = self.scripts.repair(message_id, MAX_TIME_MS, MAX_LEASE_MS + CLOCK_STEP_MS)
            done = "; ".join((yield from execute(call))) or "nothing was left to repair"
            left = {finding.kind for finding in (yield from self.wrong([message_id])).get(message_id, [])}
            findings = [
                finding if finding.kind in left else replace(finding, remedy=done, repaired=True)
                for finding in findings
            ]
        for finding in findings:
            self.report.tell(finding)

    def look_at_times(self) -> Operation[None]:
        """Check whether a consumer is there when there is work."""
        found = yield from execute(self.scripts.stats())
        lost, due = (found.now_ms - found.heads_ms.get(state, found.now_ms) for state in ("unack", "pending"))
        if lost > OVERDUE_MS:
            ended = f"a lease ended {show_duration(lost / 1000)} ago"
            what = f"{self.where}{ended}, and no consumer has taken the message back"
            remedy = "start a consumer"
            if self.repair:
                remedy = f"{plural((yield from self.recover()), 'message')} taken back"
            self.report.tell(Finding("lease-overdue", None, what, remedy, "warning", self.repair))
        if due > OVERDUE_MS and found.paused_ms is None:
            what = f"{self.where}a message has been due for {show_duration(due / 1000)}, and no consumer has taken it"
            self.report.tell(Finding("due-overdue", None, what, "start a consumer", "warning"))

    def look_at_length(self) -> Operation[None]:
        """Check whether a queue with a limit is nearly full."""
        usage = yield from execute(self.scripts.usage(LATE_MS))
        if usage.max_length is not None and usage.length >= NEARLY_FULL * usage.max_length:
            what = f"it holds {usage.length:,} of at most {usage.max_length:,} messages; beyond, sends are refused"
            remedy = "start more consumers, or configure a higher max_length"
            self.report.tell(Finding("nearly-full", None, what, remedy, "warning"))

    def recover(self) -> Operation[int]:
        count = 0
        while taken := (yield from execute(self.scripts.unack_to_retry())):
            count += taken
            if taken < MAX_MOVED:
                break
        return count

    def look_at_books(self) -> Operation[None]:
        """Check that every message is accounted for."""
        missing = _missing((yield from execute(self.scripts.stats())))
        if not missing or not _missing((yield from execute(self.scripts.stats()))):
            return
        kind = "sent" if missing > 0 else "uncounted"
        what = f"{self.where}the queue {'lacks' if missing > 0 else 'has'} {plural(abs(missing), f'{kind} message')}"
        remedy = "repair counts them as adjusted"
        if self.repair:
            remedy = f"{(yield from execute(self.scripts.reconcile_stats())):+d} counted as adjusted"
        self.report.tell(Finding("books", None, what, remedy, repaired=self.repair))


def _is_readable(envelope: bytes) -> bool:
    try:
        parse(envelope)
    except UnreadableEnvelope:
        return False
    return True


def _group_of(envelope: bytes) -> str:
    return group_of(parse(envelope)[1].headers) or ""


def _missing(found: Counts) -> int:
    counted = {**found.counters, **{str(state): count for state, count in found.counts.items()}}
    known: dict[str, Any] = {name: counted.get(name, 0) for name in (*STATES, *QueueStats.COUNTERS)}
    return QueueStats(queue="", **known).missing
