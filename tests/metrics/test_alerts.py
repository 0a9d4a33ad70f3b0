"""Alerts fire when they should, and not for a healthy queue: Prometheus runs them on the metrics of given scrapes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.metrics.test_prometheus_files import RULES, rules

pytestmark = pytest.mark.full

EMAILS = '{queue="emails"}'
BILLING = '{topic="orders",group="billing"}'
WELL = {
    f"delayq_up{EMAILS}": "1x480",
    f"delayq_consumers{EMAILS}": "2x480",
    f"delayq_paused{EMAILS}": "0x480",
    f"delayq_pause_ends_timestamp_seconds{EMAILS}": "0x480",
    f"delayq_oldest_due_age_seconds{EMAILS}": "0x480",
    f"delayq_deliveries_stuck{EMAILS}": "0x480",
    f"delayq_messages_died_total{EMAILS}": "4x480",
    f"delayq_messages_requeued_total{EMAILS}": "1x480",
    'delayq_messages{queue="emails",state="dead"}': "3x480",
    f"delayq_messages_unaccounted{EMAILS}": "0x480",
    f"delayq_schedules_late{EMAILS}": "0x480",
    f"delayq_schedule_slots_missed_total{EMAILS}": "2x480",
    'delayq_lateness_seconds_bucket{queue="emails",le="0.064"}': "0+600x480",
    'delayq_lateness_seconds_bucket{queue="emails",le="8.192"}': "0+600x480",
    'delayq_lateness_seconds_bucket{queue="emails",le="+Inf"}': "0+600x480",
    'delayq_topic_up{topic="orders"}': "1x480",
    f"delayq_topic_lag{BILLING}": "10x480",
    f"delayq_topic_lag_at_least{BILLING}": "0x480",
    f"delayq_topic_oldest_age_seconds{BILLING}": "0.4x480",
    f"delayq_topic_unacked{BILLING}": "5x480",
    f"delayq_topic_dead{BILLING}": "3x480",
    f"delayq_topic_consumers{BILLING}": "3x480",
    f"delayq_topic_consumers_seen{BILLING}": "2x480",
}
"""What one scrape a minute reports about a healthy queue and topic."""

LATE = {'delayq_lateness_seconds_bucket{queue="emails",le="0.064"}': "0x480"}
DUE = {f"delayq_oldest_due_age_seconds{EMAILS}": "120x480"}
GONE = {f"delayq_consumers{EMAILS}": "0x480"}
PAUSED = {f"delayq_paused{EMAILS}": "1x480"}
TIMED = {f"delayq_pause_ends_timestamp_seconds{EMAILS}": "1x480"}
TROUBLES: dict[str, tuple[dict[str, str], str]] = {
    "DelayqUnreachable": ({f"delayq_up{EMAILS}": "0x480"}, "10m"),
    "DelayqUntold": ({f"delayq_up{EMAILS}": "1 1 stale", 'delayq_topic_up{topic="orders"}': "1 1 stale"}, "20m"),
    "DelayqLate": (LATE, "20m"),
    "DelayqNotTaken": (DUE, "10m"),
    "DelayqNoConsumer": (DUE | GONE, "10m"),
    "DelayqDeadGrowing": ({f"delayq_messages_died_total{EMAILS}": "4x5 9x480"}, "10m"),
    "DelayqStuck": ({f"delayq_deliveries_stuck{EMAILS}": "1x480"}, "10m"),
    "DelayqPausedLong": (PAUSED, "7h"),
    "DelayqUnaccounted": ({f"delayq_messages_unaccounted{EMAILS}": "-2x480"}, "10m"),
    "DelayqScheduleLate": ({f"delayq_schedules_late{EMAILS}": "1x480"}, "10m"),
    "DelayqSlotsMissed": ({f"delayq_schedule_slots_missed_total{EMAILS}": "2x5 4x480"}, "10m"),
    "DelayqTopicUnreachable": ({'delayq_topic_up{topic="orders"}': "0x480"}, "10m"),
    "DelayqGroupNotTaken": ({f"delayq_topic_oldest_age_seconds{BILLING}": "90+60x480"}, "20m"),
    "DelayqGroupNoConsumer": ({f"delayq_topic_consumers_seen{BILLING}": "0x480"}, "10m"),
    "DelayqGroupBehind": ({f"delayq_topic_lag{BILLING}": "2000+50x480"}, "40m"),
    "DelayqGroupFarBehind": ({f"delayq_topic_lag_at_least{BILLING}": "1x480"}, "90m"),
    "DelayqGroupDeadGrowing": ({f"delayq_topic_dead{BILLING}": "3x5 4x480"}, "10m"),
}
WITH_IT = {"DelayqNoConsumer": {"DelayqNotTaken"}}
"""Alerts that always fire together with another one."""


def fires(folder: Path, promtool: str, inputs: dict[str, str], at: str, firing: set[str]) -> str:
    """Run the alerts on these series. Return promtool's complaints if others than `firing` fire at that time."""
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    cases = [
        {
            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}] if alert in firing else [],
        }
        for alert in alerts
    ]
    series = [{"series": name, "values": values} for name, values in inputs.items()]
    played = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [played]}
    path = folder / "played.yml"
    path.write_text(json.dumps(document))  # JSON is YAML too
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_nothing_fires_for_a_healthy_queue(tmp_path: Path, promtool: str):
    assert fires(tmp_path, promtool, WELL, "90m", set()) == ""


@pytest.mark.parametrize(("alert", "series", "at"), [(alert, *each) for alert, each in TROUBLES.items()])
def test_trouble_fires_its_alert_and_no_other(
    tmp_path: Path, promtool: str, alert: str, series: dict[str, str], at: str
):
    assert fires(tmp_path, promtool, WELL | series, at, {alert} | WITH_IT.get(alert, set())) == ""


@pytest.mark.parametrize("subject", ["queue", "topic"])
def test_nothing_fires_where_there_are_only_queues_or_only_topics(tmp_path: Path, promtool: str, subject: str):
    inputs = {name: values for name, values in WELL.items() if f"{{{subject}=" in name}
    assert 5 < len(inputs) < len(WELL)
    assert fires(tmp_path, promtool, inputs, "90m", set()) == ""


def test_nothing_fires_for_a_server_without_queues_and_topics(tmp_path: Path, promtool: str):
    assert fires(tmp_path, promtool, {'delayq_server_up{server=""}': "1x480"}, "90m", set()) == ""


def test_without_any_metrics_that_is_said(tmp_path: Path, promtool: str):
    assert fires(tmp_path, promtool, {}, "20m", {"DelayqUntold"}) == ""


def test_group_that_nobody_reads_fires(tmp_path: Path, promtool: str):
    left = {"lag": "900", "unacked": "0", "oldest_age_seconds": "90000", "consumers": "1", "consumers_seen": "0"}
    inputs = {f"delayq_topic_{name}{BILLING}": f"{value}x480" for name, value in left.items()}
    inputs['delayq_topic_up{topic="orders"}'] = "1x480"
    assert fires(tmp_path, promtool, inputs, "10m", {"DelayqGroupNoConsumer", "DelayqGroupNotTaken"}) == ""


def test_paused_queue_without_consumers_fires_no_alert(tmp_path: Path, promtool: str):
    assert fires(tmp_path, promtool, WELL | DUE | GONE | PAUSED, "1h", set()) == ""


ALL_LATE = LATE | DUE | {f"delayq_schedules_late{EMAILS}": "1x480"}
ALL_AT_ONCE = {f"delayq_concurrency_limit{EMAILS}": "2x480", f"delayq_concurrency_used{EMAILS}": "2x480"}
AT_THE_RATE = {f"delayq_rate_limit{EMAILS}": "100x480", f"delayq_rate_used{EMAILS}": "97 100 92x478"}


@pytest.mark.parametrize(
    ("limits", "firing"),
    [
        (ALL_AT_ONCE, set()),
        (AT_THE_RATE, set()),
        (
            {name: "1x480" if "used" in name else values for name, values in (ALL_AT_ONCE | AT_THE_RATE).items()},
            {"DelayqLate", "DelayqNotTaken", "DelayqScheduleLate"},
        ),
    ],
)
def test_queue_that_its_limit_holds_back_fires_no_alert(
    tmp_path: Path, promtool: str, limits: dict[str, str], firing: set[str]
):
    assert fires(tmp_path, promtool, WELL | ALL_LATE | limits, "1h", firing) == ""


def test_timed_pause_fires_no_alert(tmp_path: Path, promtool: str):
    assert fires(tmp_path, promtool, WELL | PAUSED | TIMED, "7h", set()) == ""


@pytest.mark.parametrize(("requeued", "dead"), [("1x5 6x480", "3x480"), ("1x480", "3x5 0x480")])
def test_dead_letters_that_were_requeued_or_purged_fire_no_alert(
    tmp_path: Path, promtool: str, requeued: str, dead: str
):
    inputs = {
        f"delayq_messages_died_total{EMAILS}": "4x5 9x480",
        f"delayq_messages_requeued_total{EMAILS}": requeued,
        'delayq_messages{queue="emails",state="dead"}': dead,
    }
    assert fires(tmp_path, promtool, WELL | inputs, "8m", set()) == ""


def test_each_alert_is_tested():
    assert {rule["alert"] for rule in rules() if "alert" in rule} == TROUBLES.keys()
