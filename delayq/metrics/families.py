"""Turns what was read of queues and topics into Prometheus metric families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from delayq.metrics.scrape import QueueReading, TopicReading
from delayq.model.configuration import Usage
from delayq.model.placement import STATES
from delayq.model.queue_stats import QueueStats

HIGHEST_POWER = 22
"""The last bounded bucket ends at 2^22 ms, 70 minutes; longer times are in the unbounded one."""

BUCKETS_MS = [2**power for power in range(HIGHEST_POWER + 1)]

COUNTERS = {
    "sent": "New messages; one that replaced another is counted as replaced instead.",
    "replaced": "Messages that replaced another one with the same id.",
    "promoted": "Moves from pending to ready.",
    "delivered": "Deliveries to consumers, including repeated ones.",
    "acked": "Messages that were acked.",
    "nacked": "Deliveries that failed and are retried.",
    "released": "Deliveries that were handed back without using a retry.",
    "held_back": "Released deliveries that had to wait for others of their key.",
    "lease_lost": "Deliveries whose lease ran out.",
    "died": "Moves to the dead letters.",
    "requeued": "Dead letters that were requeued.",
    "rescheduled": "Changes of a due time.",
    "expired": "Messages that were discarded because they had expired.",
    "cancelled": "Messages that were withdrawn.",
    "purged": "Messages that were discarded by a purge, or as old dead letters.",
    "collected": "Payloads deleted by the garbage collector.",
}

MISSED = "Slots of schedules that were missed because no consumer was there in time."

TASK_RUNS = "Runs of tasks, by how they ended, as consumers report them every 10 s."

Labels: TypeAlias = Mapping[str, str]
Samples: TypeAlias = Sequence[tuple[Labels, QueueReading]]
TopicSamples: TypeAlias = Sequence[tuple[Labels, TopicReading]]


def of_queues(samples: Samples, names: Sequence[str]) -> Iterator[Metric]:
    """Yield all families of queues.

    Args:
        names: of the labels that each queue has.
    """
    for counter, description in COUNTERS.items():
        rows = [(labels, getattr(each.stats, counter)) for labels, each in samples]
        yield _counter(f"delayq_messages_{counter}", description, names, rows)
    missed = [(labels, float(each.stats.slots_missed)) for labels, each in samples]
    yield _counter("delayq_schedule_slots_missed", MISSED, names, missed)
    yield _tasks(samples, names)
    yield _states(samples, names)
    for gauge, description in GAUGES.items():
        rows = [(labels, VALUES[gauge](each)) for labels, each in samples]
        yield _gauge(f"delayq_{gauge}", description, names, rows)
    limits = [(labels, limits_of(each.usage)) for labels, each in samples]
    for gauge, description in LIMITS.items():
        rows = [(labels, float(values[gauge])) for labels, values in limits if gauge in values]
        yield _gauge(f"delayq_{gauge}", description, names, rows)
    for name, (description, field) in HISTOGRAMS.items():
        family = HistogramMetricFamily(f"delayq_{name}_seconds", f"{description} {ESTIMATED}", labels=names)
        for labels, each in samples:
            buckets, total = histogram(getattr(each.stats, field))
            family.add_metric([labels[name] for name in names], buckets=buckets, sum_value=total)
        yield family


def of_topics(samples: TopicSamples, names: Sequence[str]) -> Iterator[Metric]:
    """Yield all families of topics' groups.

    Args:
        names: of the labels that each topic has.
    """
    for name, description in GROUPS.items():
        rows = [
            ({**labels, "group": group.info.name}, GROUP_VALUES[name](group))
            for labels, each in samples
            for group in each.groups
        ]
        yield _gauge(f"delayq_topic_{name}", description, [*names, "group"], rows)


def up(names: Sequence[str], rows: Iterable[tuple[Labels, bool]], subject: str) -> Metric:
    """Return the family that says what could be read."""
    description = f"1 if the {subject} could be read in time for this scrape, else 0."
    return _gauge(f"delayq_{'' if subject == 'queue' else subject + '_'}up", description, names, rows)


def left_out(kind: str, counts: Mapping[str, int]) -> Metric:
    """Return the family that counts the queues, or topics, of each server that are left out."""
    description = f"{kind.capitalize()}s without metrics, because there are too many."
    rows = [({"server": name}, float(each)) for name, each in counts.items()]
    return _gauge(f"delayq_{kind}s_left_out", description, ["server"], rows)


def histogram(counts: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative buckets, in seconds, as Prometheus has them, and an estimate of the sum.

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
    """Return for how many seconds the earliest due message has waited; 0 if none is due."""
    return 0.0 if stats.oldest_due_at is None else max(0.0, (stats.at - stats.oldest_due_at).total_seconds())


def next_due(stats: QueueStats) -> float:
    """Return when the next message falls due, as seconds since 1970; 0 without one."""
    return 0.0 if stats.next_due_at is None else stats.next_due_at.timestamp()


def pause_end(stats: QueueStats) -> float:
    """Return when a pause ends by itself, as seconds since 1970; 0 without such an end."""
    return 0.0 if stats.paused_until is None else stats.paused_until.timestamp()


def limits_of(usage: Usage) -> dict[str, float]:
    """Return how much a queue uses of the limits that are set, by the names of `LIMITS`."""
    found: dict[str, float] = {}
    if usage.concurrency is not None:
        found |= {"concurrency_limit": usage.concurrency, "concurrency_used": usage.running}
    if usage.rate is not None and usage.period_ms is not None:
        found |= {"rate_limit": usage.rate, "rate_used": usage.handed_out}
        found["rate_period_seconds"] = usage.period_ms / 1000
    if usage.per_key is not None:
        found |= {"key_concurrency_limit": usage.per_key, "key_concurrency_used": usage.key_slots}
        found["key_waiting"] = usage.key_waiting
    if usage.max_length is not None:
        found |= {"length_limit": usage.max_length, "length_used": usage.length}
    return found


GAUGES = {
    "messages_scheduled": "New messages that are not yet due.",
    "messages_due": "Due messages that wait for a consumer, retries included.",
    "consumers": "Consumers that were seen within the last 30 seconds.",
    "oldest_due_age_seconds": "How long the earliest due message has waited to be handled; 0 if none is due.",
    "deliveries_stuck": "Deliveries that take far longer than usual, or whose handlers run beyond their time limit.",
    "next_due_timestamp_seconds": "When the next message falls due, as Unix time; 0 if there is none.",
    "paused": "1 while the queue is paused.",
    "pause_ends_timestamp_seconds": "When the queue's pause ends by itself, as Unix time; 0 if only `resume` ends it.",
    "schedules_late": "Schedules whose slot was over 5 seconds ago and whose occurrence no consumer has taken.",
    "schedule_lateness_seconds": "How long ago the earliest slot of a late schedule was; 0 if none is late.",
    "messages_unaccounted": "Messages that the counts do not account for; anything but 0 is an error.",
    "messages_adjusted": "Messages that repairs took off the counts; negative if they were added.",
}
VALUES = {
    "messages_scheduled": lambda each: float(each.stats.scheduled),
    "messages_due": lambda each: float(each.stats.due),
    "consumers": lambda each: float(each.consumers),
    "oldest_due_age_seconds": lambda each: oldest_due_age(each.stats),
    "deliveries_stuck": lambda each: float(each.stuck),
    "next_due_timestamp_seconds": lambda each: next_due(each.stats),
    "paused": lambda each: float(each.stats.paused_since is not None),
    "pause_ends_timestamp_seconds": lambda each: pause_end(each.stats),
    "schedules_late": lambda each: float(each.usage.late_schedules),
    "schedule_lateness_seconds": lambda each: float(each.usage.latest_ms / 1000),
    "messages_unaccounted": lambda each: float(each.stats.missing),
    "messages_adjusted": lambda each: float(each.stats.adjusted),
}
LIMITS = {
    "concurrency_limit": "Maximum messages that may run at once.",
    "concurrency_used": "Messages that run.",
    "rate_limit": "Maximum deliveries within any period.",
    "rate_used": "Deliveries within the last period.",
    "rate_period_seconds": "Length of the rate's period.",
    "key_concurrency_limit": "Maximum messages of one key that may run at once.",
    "key_concurrency_used": "Messages that run under a key, over all keys.",
    "key_waiting": "Messages that wait for others of their key.",
    "length_limit": "Maximum messages that may wait or run; sends beyond it are refused.",
    "length_used": "Messages that wait or run.",
}
"""The gauges for the limits of a queue; only limits that are set are reported."""

HISTOGRAMS = {
    "lateness": ("How long after their due time messages were handed out.", "lateness"),
    "handler": ("How long handlers took.", "handler_time"),
}
ESTIMATED = "The sum is an estimate, from the middles of the buckets."
GROUPS = {
    "lag": "Records not yet delivered to the group; if the server does not know, up to 1,000 per shard are counted.",
    "lag_at_least": "1 if there may be more records than the lag says.",
    "oldest_age_seconds": (
        "How long the first record that is not yet delivered to the group has been there; 0 if there is none."
    ),
    "unacked": "Records that were delivered to the group and not acked.",
    "dead": "Dead letters of the group.",
    "consumers": "Consumers of the group, including silent ones.",
    "consumers_seen": "Consumers of the group that were seen within the last minute.",
}
GROUP_VALUES = {
    "lag": lambda each: float(each.info.lag),
    "lag_at_least": lambda each: float(each.info.at_least),
    "oldest_age_seconds": lambda each: float(each.age),
    "unacked": lambda each: float(each.info.unacked),
    "dead": lambda each: float(each.info.dead),
    "consumers": lambda each: float(each.info.consumers),
    "consumers_seen": lambda each: float(each.seen),
}


def _states(samples: Samples, names: Sequence[str]) -> Metric:
    rows = [
        ({**labels, "state": state}, float(getattr(each.stats, state))) for labels, each in samples for state in STATES
    ]
    return _gauge("delayq_messages", "Messages that are there now, by state.", [*names, "state"], rows)


def _tasks(samples: Samples, names: Sequence[str]) -> Metric:
    """Return the family of runs of tasks, in the order of their names; each shard has up to 101 of them."""
    rows = [
        ({**labels, "task": task, "outcome": outcome}, float(getattr(runs, outcome)))
        for labels, each in samples
        for task, runs in each.stats.tasks.items()
        for outcome in runs.__struct_fields__
    ]
    return _counter("delayq_task_runs", TASK_RUNS, [*names, "task", "outcome"], rows)


def _counter(name: str, description: str, names: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Metric:
    family = CounterMetricFamily(name, description, labels=names)
    for labels, value in rows:
        family.add_metric([labels[each] for each in names], value)
    return family


def _gauge(name: str, description: str, names: Sequence[str], rows: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(name, description, labels=names)
    for labels, value in rows:
        family.add_metric([labels[each] for each in names], value)
    return family
