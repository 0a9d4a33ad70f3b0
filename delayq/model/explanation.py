"""Say in one sentence why a message has not been delivered, or what became of it, from the data that was read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from delayq.model import health
from delayq.model.configuration import Configuration
from delayq.model.consumer_info import UNSEEN_MS, ConsumerInfo, holders
from delayq.model.event import Event
from delayq.model.message_group import MessageGroupInfo
from delayq.model.message_info import MessageInfo
from delayq.model.outcome import cause
from delayq.model.queue_stats import QueueStats
from delayq.model.result import DEAD, DONE, TaskResult
from delayq.model.show import plural, show_duration, show_moment, show_per_second
from delayq.model.text import printable_id
from delayq.model.units import from_ms

MOST_ERROR = 200  # characters
SOON = dt.timedelta(seconds=1)  # a wait for others that is not worth an estimate


class Known(NamedTuple):
    """The data that was read.

    Attributes:
        info: of the message; None if the queue does not hold it.
        last_seen: which consumer reported last, and when, ms; None if none ever did.
        ledger: the message's entries, earliest first; None if they were not read.
        consumers: what the consumers reported; empty if that was not read.
        stats: the queue's counts; None if they were not read.
        group: the group that a held message waits for; None if it is gone.
        result: of the task of a message that is gone, if no ledger tells more; None if none is kept.
        rate: messages handed out per second in the last minutes, where this one waits; 0 if it is unknown.
    """

    queue: str
    id: str
    info: MessageInfo | None
    standing: Standing
    limits: Configuration = Configuration()
    last_seen: tuple[str, int] | None = None
    ledger: Sequence[Event] | None = None
    consumers: Sequence[ConsumerInfo] = ()
    stats: QueueStats | None = None
    group: MessageGroupInfo | None = None
    result: TaskResult | None = None
    rate: float = 0.0

    @property
    def now(self) -> dt.datetime:
        return from_ms(self.standing.now_ms)

    def at(self, moment: dt.datetime) -> str:
        """Return a moment as text, with its distance from the queue's now."""
        return show_moment(moment, self.now)


def why(known: Known) -> str:
    """Say why the message has not been delivered, or what became of it."""
    info, subject = known.info, printable_id(known.id)
    if info is None or info.state == "garbage":
        return f"{subject} {_gone(known)}"
    if info.task is not None:
        subject += f", for task {info.task},"
    if info.schedule is not None:
        subject += f", an occurrence of schedule {info.schedule},"
    explain = {"dead": _dead, "unack": _running, "held": _held}.get(info.state, _waiting)
    said, at = f"{subject} {explain(known, info)}", expected(known)
    if at is None:
        return said
    rate = f"at the rate of the last minutes, {show_per_second(known.rate)} per second"
    return f"{said}; {rate}, it is handed out at about {known.at(at)}"


def expected(known: Known) -> dt.datetime | None:
    """Return when a waiting message is probably handed out, if others delay it; None if that cannot be said.

    Messages that fall due before it, and are still to be sent, are not counted.
    """
    info = known.info
    if info is None or info.due_at is None or known.rate <= 0 or _stops(known, info):
        return None
    try:
        at = known.now + dt.timedelta(seconds=(known.standing.earlier + 1) / known.rate)
    except OverflowError:
        return None
    return at if at > max(info.due_at, known.now) + SOON else None


def _stops(known: Known, info: MessageInfo) -> bool:
    """Whether more than messages that are due earlier keeps a message from being handed out."""
    standing, is_over = known.standing, info.expires_at is not None and info.expires_at <= known.now
    is_lost = info.envelope is None or (is_over and not info.attempts)
    return bool(is_lost or standing.paused_ms is not None or standing.parked or not standing.earlier or _absent(known))


def _gone(known: Known) -> str:
    if known.ledger:
        last = known.ledger[-1]
        at, by = known.at(last.at), f" by attempt {last.attempt}" if last.event == "acked" and last.attempt else ""
        if last.event not in _ENDS:
            return f'is gone from queue {known.queue}: the last entry of the ledger about it is "{last.event}", at {at}'
        return f"{_ENDS[last.event]} at {at}{by}" + (f", because {_short(last.reason)}" if last.reason else "")
    if known.result is not None and known.result.finished_at is not None:
        return _ended(known, known.result, known.result.finished_at)
    if known.info is not None:
        return f"is gone from queue {known.queue}: it was cancelled or purged, or it expired"
    never = f"is not in queue {known.queue}: it was never sent, or"
    if known.limits.events is None:
        return f"{never} is gone; the ledger would say how, but it is off"
    if known.ledger is None:
        return f"{never} is gone; the ledger would say how, but it cannot be read"
    return f"{never} has been gone for longer than the ledger reaches back"


def _ended(known: Known, result: TaskResult, finished: dt.datetime) -> str:
    """Say how the latest message with this id that kept a result ended; a later one may have kept none."""
    end = {DONE: "was acked", DEAD: "became a dead letter"}.get(result.status, "expired")
    said = f"is gone; a message with this id {end} at {known.at(finished)}"
    if result.status == DONE:
        task = f"task {result.task}" if result.task else "its task"
        said += f" by attempt {result.attempts}: {task} has ended"
    elif result.error is not None:
        said += f", with the reason: {_short(result.error.cause)}"
    return said if result.kept_until is None else f"{said}; its result is kept until {known.at(result.kept_until)}"


_ENDS = {"acked": "was acked", "cancelled": "was cancelled", "expired": "expired", "purged": "was purged"}


def _dead(known: Known, info: MessageInfo) -> str:
    since = known.at(info.died_at or known.now)
    why = _short(cause(info.reason, info.error))
    return f"has been dead since {since}" + (f", with the reason: {why}" if why else ", for an unknown reason")


def _held(known: Known, info: MessageInfo) -> str:
    group, remedy = known.group, "reschedule it to run it anyway, or cancel it"
    if group is None or not group.left:
        return f"waits for group {info.group or 'unknown'}, which is gone: {remedy}"
    have = "has" if group.total == 1 else "have"
    text = f"waits for group {group.id}: {group.left:,} of {plural(group.total, 'member')} {have} not ended"
    if not group.dead or group.left < group.dead:
        return text
    dead = "all are dead letters" if group.left == group.dead else f"{group.dead:,} of them are dead letters"
    return f"{text}, and {dead}, for which it waits until they are requeued and acked, or deleted"


def _running(known: Known, info: MessageInfo) -> str:
    ends = info.lease_until or known.now
    attempt, holder = f"attempt {info.attempts}", _holder(known, info)
    if ends > known.now:
        holder = f"consumer {holder}" if holder else "an unknown consumer"
        text = f"is running: {attempt} is held by {holder} until {known.at(ends)}"
        text += f"{_reported(info)}{_overlong(known, info)}"
    else:
        by = f" by consumer {holder}" if holder else ""
        text = f"was lost{by}: the lease of {attempt} ended at {known.at(ends)}, and "
        text += _absent(known) or "a consumer is about to take it back"
    return f"{text}; it will not be retried because it was cancelled" if info.cancelled else text


def _reported(info: MessageInfo) -> str:
    return f"; it has reported progress: {_short(str(info.progress))}" if info.progress else ""


def _overlong(known: Known, info: MessageInfo) -> str:
    since, _ = _hand_out(known, info)
    if since is None or known.stats is None:
        return ""
    limits = [held.timeout for _, held in holders(known.consumers, known.id, info.attempts)]
    seconds, limit = (known.now - since).total_seconds(), info.timeout or max(filter(None, limits), default=None)
    why = health.overlong(seconds, known.stats, limit)
    return f"; it has been held for {show_duration(seconds)}, {why}" if why else ""


def _holder(known: Known, info: MessageInfo) -> str | None:
    return _hand_out(known, info)[1]


def _hand_out(known: Known, info: MessageInfo) -> tuple[dt.datetime | None, str | None]:
    """Return when the running attempt was handed out, and to whom, as far as it is known."""
    given = [each for each in known.ledger or () if each.event == "delivered"]
    if given and given[-1].attempt == info.attempts:
        return given[-1].at, given[-1].consumer
    reports = holders(known.consumers, known.id, info.attempts)
    return (reports[-1][1].since, reports[-1][0].name) if reports else (None, None)


def _waiting(known: Known, info: MessageInfo) -> str:
    due, parked = info.due_at or known.now, known.standing.parked
    if parked and info.state == "pending" and from_ms(parked[0]) == due:
        own = known.at(from_ms(parked[1]))
        if due <= known.now:
            return f"has been due since {own}, {_obstacle(known, info)}"
        return f"has been due since {own}, but is held back by the limit per key{_of_its_key(known, due)}"
    failed = ""
    if info.state == "retry":
        error = f"{', the last time with' if info.attempts else ':'} {_short(info.error)}" if info.error else ""
        is_plain = info.attempts == info.retries_used
        used = "" if is_plain else f" ({info.retries_used:,} of {info.max_retries or 0:,} retries used up)"
        began = f"has failed {_times(info.attempts)}{used}" if info.attempts else "has not been started"
        failed = f"{began}{error}, and its next attempt "
    if due > known.now:
        return f"{failed}is not due until {known.at(due)}{_too_late(known, info)}"
    return f"{failed}has been due since {known.at(due)}, {_obstacle(known, info)}"


def _too_late(known: Known, info: MessageInfo) -> str:
    if info.attempts or info.expires_at is None or info.due_at is None or info.expires_at >= info.due_at:
        return ""
    return f", but expires before, at {known.at(info.expires_at)}"


def _of_its_key(known: Known, until: dt.datetime) -> str:
    most = known.limits.concurrency_per_key
    if most is None:
        return f", which was removed: a consumer looks again by {known.at(until)}"
    # How many are running is unknown until a consumer looks again: dead consumers still hold slots.
    return f": {plural(most, 'message')} with its key may run at a time; a consumer looks again by {known.at(until)}"


def _obstacle(known: Known, info: MessageInfo) -> str:
    """Say what a due message waits for: the first of these that would hold it back by itself."""
    standing, limits = known.standing, known.limits
    behind = f"{_messages(standing.earlier)} due earlier" if standing.earlier else ""
    if info.envelope is None:
        return "but its payload is gone or unreadable: the next consumer moves it to the dead letters"
    if info.expires_at is not None and info.expires_at <= known.now and not info.attempts:
        return f"but it expired at {known.at(info.expires_at)}: the next consumer drops it"
    if standing.paused_ms is not None:
        until = "" if standing.paused_until_ms is None else f" until {known.at(from_ms(standing.paused_until_ms))}"
        return f"but the queue has been paused since {known.at(from_ms(standing.paused_ms))}{until}"
    if absent := _absent(known):
        return f"but {absent}"
    if limits.concurrency and standing.running >= limits.concurrency:
        many = f"{standing.running:,} of {limits.concurrency:,} allowed messages are running"
        return f"but is held back by the concurrency limit: {many}"
    if standing.free == 0 and standing.opens_ms is not None:
        goes = f"the next is handed out at {known.at(from_ms(standing.opens_ms))}"
        return f"but is held back by the rate limit of {limits.rate}: {goes}" + (f", and {behind}" if behind else "")
    if behind:
        return f"but waits behind others: {behind}"
    return f"and is handed out as soon as a consumer has room: {_seen(known)}"


def _absent(known: Known) -> str:
    """Say that there is no consumer; return "" if there is one."""
    if known.last_seen is None:
        return f"no consumer of queue {known.queue} has ever been seen"
    name, seen_ms = known.last_seen
    gone_ms = known.standing.now_ms - seen_ms
    if gone_ms <= UNSEEN_MS:
        return ""
    ago = show_duration(gone_ms / 1000)
    return f"no consumer of queue {known.queue} has been seen for {ago} (the last was {printable_id(name)})"


def _seen(known: Known) -> str:
    name, seen_ms = known.last_seen or ("", 0)
    return f"{printable_id(name)} was seen {show_duration(max(0, known.standing.now_ms - seen_ms) / 1000)} ago"


def _messages(count: int) -> str:
    return f"{plural(count, 'message')} {'is' if count == 1 else 'are'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _short(error: str) -> str:
    line = " ".join(error.split())
    return line if len(line) <= MOST_ERROR else line[: MOST_ERROR - 1] + "…"


class Standing(NamedTuple):
    """What may keep a waiting message from being handed out.

    Attributes:
        earlier: how many waiting messages are due earlier.
        running: how many messages are handed out and not settled.
        free: how many deliveries the limits allow now; None without limits and while the queue is paused.
        opens_ms: when the rate allows the next delivery after those; None if it is not the rate that limits.
        parked: until when at the latest it waits for others with its key, ms, and its due time, ms.
        paused_until_ms: when a pause ends by itself; None if only `resume` ends it.
    """

    now_ms: int
    paused_ms: int | None
    earlier: int
    running: int
    free: int | None
    opens_ms: int | None
    parked: tuple[int, int] | None
    paused_until_ms: int | None = None
