"""From what was read of queues to the families of samples that Prometheus takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from delayq.metrics.scrape import QueueReading, TopicReading
from delayq.model.configuration import Usage
from delayq.model.placement import STATES
from delayq.model.queue_stats import QueueStats

HIGHEST_POWER = 22
"""The last bucket with an end of its own is of 2^22 ms, 70 minutes: what took longer is in the one without end."""

BUCKETS_MS = [2**power for power in range(HIGHEST_POWER + 1)]

COUNTERS = {
    "sent": "New messages; one that replaced another is counted as replaced instead.",
    "replaced": "Messages that replaced another one of their id.",
    "promoted": "Moves from pending to ready.",
    "delivered": "Hand-outs to consumers, repeated ones included.",
    "acked": "Messages that are done.",
    "nacked": "Deliveries that have failed, and are tried again.",
    "released": "Hand-outs that were handed back, which uses up no retry.",
    "held_back": "Of those released: the ones that had to wait for others of their key.",
    "lease_lost": "Hand-outs whose lease ran out.",
    "died": "Moves to the dead letters.",
    "requeued": "Dead letters that were brought back.",
    "rescheduled": "Changes of a due time.",
    "expired": "Messages that were discarded when their time was over.",
    "cancelled": "Messages that were withdrawn.",
    "purged": "Messages that were discarded by a purge, or as dead letters too old.",
    "collected": "Payloads deleted by the garbage collector.",
}

MISSED = "Slots of schedules for which nothing ran: no consumer was there in time."

Labels: TypeAlias = Mapping[str, str]
Samples: TypeAlias = Sequence[tuple[Labels, QueueReading]]
TopicSamples: TypeAlias = Sequence[tuple[Labels, TopicReading]]


def of_queues(samples: Samples, names: Sequence[str]) -> Iterator[Metric]:
    """Yield all families of queues.

    Args:
        names: of the labels that each queue has.
    """
    for counter, told in COUNTERS.items():
        rows = [(labels, getattr(each.stats, counter)) for labels, each in samples]
        yield _counter(f"delayq_messages_{counter}", told, names, rows)
    missed = [(labels, float(each.stats.slots_missed)) for labels, each in samples]
    yield _counter("delayq_schedule_slots_missed", MISSED, names, missed)
    yield _states(samples, names)
    for gauge, told in GAUGES.items():
        rows = [(labels, VALUES[gauge](each)) for labels, each in samples]
        yield _gauge(f"delayq_{gauge}", told, names, rows)
    limits = [(labels, limits_of(each.usage)) for labels, each in samples]
    for gauge, told in LIMITS.items():
        rows = [(labels, float(values[gauge])) for labels, values in limits if gauge in values]
        yield _gauge(f"delayq_{gauge}", told, names, rows)
    for name, (told, field) in HISTOGRAMS.items():
        family = HistogramMetricFamily(f"delayq_{name}_seconds", f"{told} {ESTIMATED}", labels=names)
        for labels, each in samples:
            buckets, total = histogram(getattr(each.stats, field))
            family.add_metric([labels[name] for name in names], buckets=buckets, sum_value=total)
        yield family


def of_topics(samples: TopicSamples, names: Sequence[str]) -> Iterator[Metric]:
    """Yield all families of topics' groups.

    Args:
        names: of the labels that each topic has.
    """
    for name, (told, field) in GROUPS.items():
        rows = [
            ({**labels, "group": group.name}, float(getattr(group, field)))
            for labels, each in samples
            for group in each.groups
        ]
        yield _gauge(f"delayq_topic_{name}", told, [*names, "group"], rows)


def up(names: Sequence[str], rows: Iterable[tuple[Labels, bool]], subject: str) -> Metric:
    """Return the family that tells of what could be read."""
    told = f"1 when the {subject} could be read for this scrape, 0 when it could not, or not in time."
    return _gauge(f"delayq_{'' if subject == 'queue' else subject + '_'}up", told, names, rows)


def left_out(kind: str, counts: Mapping[str, int]) -> Metric:
    """Return the family of how many queues, or topics, of each server are left out."""
    told = f"{kind.capitalize()}s without metrics, because there are too many."
    rows = [({"server": name}, float(each)) for name, each in counts.items()]
    return _gauge(f"delayq_{kind}s_left_out", told, ["server"], rows)


def histogram(counts: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """Return buckets as Prometheus has them, in seconds, each with those below; and an estimate of the sum.

    Args:
        counts: ms (the upper end of a bucket, a power of two) to how many are in it.
    """
    buckets: list[tuple[str, float]] = []
    below = 0
    for end in BUCKETS_MS:
        below += counts.get(end, 0)
        buckets.append((repr(end / 1000), below))
    buckets.append(("+Inf", sum(counts.values())))
    middles = ((0.5 if end == 1 else 0.75 * end, count) for end, count in counts.items())
    return buckets, sum(middle * count for middle, count in middles) / 1000


def oldest_due_age(stats: QueueStats) -> float:
    """Return for how many seconds the earliest message that is due, and not handled, has been so; 0 without any."""
    return 0.0 if stats.oldest_due_at is None else max(0.0, (stats.at - stats.oldest_due_at).total_seconds())


def next_due(stats: QueueStats) -> float:
    """Return when the next message falls due, as seconds since 1970; 0 without one."""
    return 0.0 if stats.next_due_at is None else stats.next_due_at.timestamp()


def pause_end(stats: QueueStats) -> float:
    """Return when a pause ends by itself, as seconds since 1970; 0 without such an end."""
    return 0.0 if stats.paused_until is None else stats.paused_until.timestamp()


def limits_of(usage: Usage) -> dict[str, float]:
    """Return how much of its limits a queue uses: of those that are set, by the names of `LIMITS`."""
    found: dict[str, float] = {}
    if usage.concurrency is not None:
        found |= {"concurrency_limit": usage.concurrency, "concurrency_used": usage.running}
    if usage.rate is not None and usage.period_ms is not None:
        found |= {"rate_limit": usage.rate, "rate_used": usage.handed_out}
        found["rate_period_seconds"] = usage.period_ms / 1000
    if usage.per_key is not None:
        found |= {"key_concurrency_limit": usage.per_key, "key_concurrency_used": usage.key_slots}
        found["key_waiting"] = usage.key_waiting
    return found


GAUGES = {
    "messages_scheduled": "New messages that are not due yet.",
    "messages_due": "Messages that are due and wait for a consumer, wherever they are.",
    "consumers": "Consumers that were seen within the last 30 seconds.",
    "oldest_due_age_seconds": "For how long the earliest message that is due has waited to be handled; 0 when none is.",
    "next_due_timestamp_seconds": "When the next message falls due, as Unix time; 0 without one.",
    "paused": "1 while the queue hands out nothing.",
    "pause_ends_timestamp_seconds": "When the queue's pause ends by itself, as Unix time; 0 when `resume` ends it.",
    "schedules_late": "Schedules whose slot was over 5 seconds ago, and whose occurrence nobody has taken.",
    "schedule_lateness_seconds": "How long ago the earliest of these slots was; 0 without any.",
    "messages_unaccounted": "Messages that the books do not account for: 0, or something is wrong.",
    "messages_adjusted": "What repairs have struck off the books; added to them when negative.",
}
VALUES = {
    "messages_scheduled": lambda each: float(each.stats.scheduled),
    "messages_due": lambda each: float(each.stats.due),
    "consumers": lambda each: float(each.consumers),
    "oldest_due_age_seconds": lambda each: oldest_due_age(each.stats),
    "next_due_timestamp_seconds": lambda each: next_due(each.stats),
    "paused": lambda each: float(each.stats.paused_since is not None),
    "pause_ends_timestamp_seconds": lambda each: pause_end(each.stats),
    "schedules_late": lambda each: float(each.usage.late_schedules),
    "schedule_lateness_seconds": lambda each: float(each.usage.latest_ms / 1000),
    "messages_unaccounted": lambda each: float(each.stats.missing),
    "messages_adjusted": lambda each: float(each.stats.adjusted),
}
LIMITS = {
    "concurrency_limit": "How many messages may run at once.",
    "concurrency_used": "How many of them run.",
    "rate_limit": "How many hand-outs any period may have.",
    "rate_used": "Hand-outs within the last period.",
    "rate_period_seconds": "How long a period of the rate is.",
    "key_concurrency_limit": "How many messages of one key may run at once.",
    "key_concurrency_used": "Messages that run under a key, of all keys.",
    "key_waiting": "Messages that wait for others of their key.",
}
"""What is told of the limits of a queue, and of those only that are set."""

HISTOGRAMS = {
    "lateness": ("How long after their due time messages were handed out.", "lateness"),
    "handler": ("How long handlers took.", "handler_time"),
}
ESTIMATED = "The sum is an estimate, from the middles of the buckets."
GROUPS = {
    "lag": (
        "Records that the group was not handed yet; where the server does not know, up to 1,000 a shard are counted.",
        "lag",
    ),
    "lag_at_least": ("1 where there may be more records than the lag says.", "at_least"),
    "unacked": ("Records that the group was handed, and has not acked.", "unacked"),
    "dead": ("Dead letters of the group.", "dead"),
    "consumers": ("Consumers of the group.", "consumers"),
}


def _states(samples: Samples, names: Sequence[str]) -> Metric:
    rows = [
        ({**labels, "state": state}, float(getattr(each.stats, state))) for labels, each in samples for state in STATES
    ]
    return _gauge("delayq_messages", "Messages that are there now, by state.", [*names, "state"], rows)


def _counter(name: str, told: str, names: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(name, told, labels=names)
    for labels, value in rows:
        family.add_metric([labels[each] for each in names], value)
    return family


def _gauge(name: str, told: str, names: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=names)
    for labels, value in rows:
        family.add_metric([labels[each] for each in names], value)
    return family
