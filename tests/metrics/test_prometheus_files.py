"""The files of examples/monitoring and examples/deploy: their programs accept them, and what they name exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from delayq.cli import main

from delayq import Queue, Topic
from delayq.metrics import DiscoveredQueues, Metrics
from delayq.metrics.discovery import SampledQueue
from delayq.metrics.scrape import ReadTopic
from delayq.model import health
from delayq.model.show import show_duration
from delayq.model.units import parse_duration
from tests.harness.scrapes import Found, Scrape
from tests.harness.tree import ROOT

MONITORING, DEPLOY = ROOT / "examples" / "monitoring", ROOT / "examples" / "deploy"
RULES, DASHBOARD = MONITORING / "delayq.rules.yml", MONITORING / "grafana-dashboard.json"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yml"))
NAME = re.compile(r"\bdelayq[_:][a-z0-9_:]+")
SUPERVISOR_MARGIN = 15  # seconds, see delayq.cli.consume.supervisor.KILL_MARGIN


class One:
    """A server with one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def search(self) -> Found:
        return Found([self._queue.name])

    def queue(self, _: str) -> SampledQueue:
        return self._queue

    def topic(self, name: str) -> ReadTopic:
        raise AssertionError(name)


@pytest.fixture
def names(queue: Queue) -> set[str]:
    """The names of all samples that exist."""
    queue.configure(rate="9/s", concurrency=9, concurrency_per_key=9)
    queue.send("x")
    with Topic("orders", redis=queue._executor.client) as topic:
        topic.group("billing", start="0").lag()
        topic.publish("x")
        return Scrape(
            Metrics(topics=[topic], servers=[DiscoveredQueues(One(queue))]).exposition().body.decode()
        ).names()


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def strings(document: Any, key: str) -> Iterator[str]:
    """All strings under a key, at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key and isinstance(value, str):
                yield value
            yield from strings(value, key)
    elif isinstance(document, list):
        for each in document:
            yield from strings(each, key)


def expressions() -> list[str]:
    scaling = yaml.safe_load((DEPLOY / "kubernetes" / "scaling.yml").read_text())
    dashboard = json.loads(DASHBOARD.read_text())
    return [*strings(rules(), "expr"), *strings(dashboard, "expr"), *strings(scaling, "query")]


def test_each_metric_in_rules_dashboard_and_scaling_exists(names: set[str]):
    used = {name for each in expressions() for name in NAME.findall(each)}
    assert len(used) > 15
    assert used - names - recorded() == set()


def test_each_label_in_rules_dashboard_and_scaling_exists():
    groups = [group for each in expressions() for group in re.findall(r"by \(([^)]*)\)", each)]
    labels = {label.strip() for group in groups for label in group.split(",")}
    assert labels == {"server", "queue", "le", "topic", "group"}


def test_each_trouble_has_an_alert():
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    assert alerts == [
        *("DelayqUnreachable", "DelayqUntold", "DelayqLate", "DelayqNotTaken", "DelayqNoConsumer", "DelayqDeadGrowing"),
        *(
            "DelayqStuck",
            "DelayqPausedLong",
            "DelayqUnaccounted",
            "DelayqScheduleLate",
            "DelayqSlotsMissed",
            "DelayqTopicUnreachable",
        ),
        *("DelayqGroupNotTaken", "DelayqGroupNoConsumer", "DelayqGroupBehind", "DelayqGroupFarBehind"),
        "DelayqGroupDeadGrowing",
    ]
    assert all({"summary", "description"} <= set(rule["annotations"]) for rule in rules() if "alert" in rule)


TWINS = {
    "DelayqUnreachable": "DelayqTopicUnreachable",
    "DelayqUntold": "DelayqUntold",
    "DelayqLate": "DelayqGroupBehind",
    "DelayqNotTaken": "DelayqGroupNotTaken",
    "DelayqNoConsumer": "DelayqGroupNoConsumer",
    "DelayqDeadGrowing": "DelayqGroupDeadGrowing",
}
ONLY_QUEUES = {"DelayqPausedLong", "DelayqUnaccounted", "DelayqScheduleLate", "DelayqSlotsMissed", "DelayqStuck"}
"""Topics have no pauses, no counts that must balance, no schedules, and no times of handlers."""


def test_each_alert_on_queues_has_its_twin_on_topics():
    alerts = {rule["alert"]: rule["expr"] for rule in rules() if "alert" in rule}
    on_queues = {name for name, expression in alerts.items() if "delayq_topic" not in expression}
    assert on_queues - ONLY_QUEUES == TWINS.keys() - {"DelayqUntold"}
    assert all("delayq_topic" in alerts[twin] for twin in TWINS.values())


def test_alerts_and_panels_agree_with_delayq_about_troubles():
    alerts = {rule["alert"]: rule["expr"] for rule in rules() if "alert" in rule}
    assert f":p99 > {health.LATE_SECONDS:g} " in alerts["DelayqLate"]
    assert f"delayq_oldest_due_age_seconds) > {health.OVERDUE_SECONDS:g}" in alerts["DelayqNotTaken"]
    assert f"[{show_duration(health.WINDOW.total_seconds())}]" in alerts["DelayqDeadGrowing"]
    assert f"delayq_rate_used >= {health.NEARLY_USED_UP:g} * delayq_rate_limit" in rules()[1]["expr"]
    for alert in ("DelayqLate", "DelayqNotTaken", "DelayqScheduleLate"):
        assert "delayq:limit_used_up" in alerts[alert]
    found = [alerts["DelayqNoConsumer"], *(each for each in expressions() if re.search(r"consumers\{.*== 0", each))]
    assert len(found) == 2
    for each in [*found, alerts["DelayqNotTaken"]]:
        assert "unless max by (server, queue) (delayq_paused) == 1" in each
    for each in found:
        assert re.search(r"delayq_oldest_due_age_seconds(\{.*?\})?\) > 0 ?", each)


def test_panels_of_the_dashboard_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.full
def test_prometheus_accepts_configuration_and_rules(promtool: str):
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@pytest.mark.full
def test_page_follows_the_conventions_of_prometheus(queue: Queue, promtool: str):
    queue.send("x")
    page = Metrics([queue]).exposition().body
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Commands


def command_lines() -> list[list[str]]:
    """All calls of delayq in the files: the words after the program's name."""
    unit = (DEPLOY / "delayq-consumer@.service").read_text()
    docker = (DEPLOY / "Dockerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    found = [re.findall(r"^ExecStart=\S*/delayq (.*)$", unit, re.MULTILINE)[0].split()]
    found.append(json.loads(re.findall(r"^CMD (.*)$", docker, re.MULTILINE)[0]))
    found += [service["command"] for service in compose.values() if service.get("build")]
    return [*found, *(each["args"] for each in containers())]


def deployments() -> list[dict[str, Any]]:
    documents = [each for path in KUBERNETES for each in yaml.safe_load_all(path.read_text())]
    return [each for each in documents if each["kind"] == "Deployment"]


def containers() -> list[dict[str, Any]]:
    return [container for each in deployments() for container in each["spec"]["template"]["spec"]["containers"]]


def read(words: list[str]) -> dict[str, Any]:
    """What delayq understands by a command line, without running it."""
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    with command.make_context(words[0], words[1:]) as context:
        return dict(context.params)


def option(words: list[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def test_commands_and_their_options_exist():
    lines = command_lines()
    assert len(lines) == 8
    assert {words[0] for words in lines} == {"consume", "dashboard", "exporter"}
    for words in lines:
        assert read(words)


def test_container_listens_where_its_probes_ask():
    for container in containers():
        words = container["args"]
        if words[0] == "dashboard":
            continue
        port = read(words).get("metrics_port") or read(words)["port"]
        (declared,) = container["ports"]
        assert (declared["containerPort"], declared["name"]) == (port, "metrics")
        assert option(words, "--metrics-host") or option(words, "--host") == "0.0.0.0"
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_targets_of_prometheus_are_services_of_the_compose_file_on_their_ports():
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    jobs = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    for target in [each for job in jobs for config in job["static_configs"] for each in config["targets"]]:
        name, port = target.split(":")
        words = services[name]["command"]
        assert port in (option(words, "--metrics-port"), option(words, "--port"))
    for volume in services["prometheus"]["volumes"] + services["grafana"]["volumes"]:
        assert (DEPLOY / volume.split(":")[0]).is_file()


def test_grafana_has_the_dashboard_and_the_address_of_prometheus():
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    places = {
        Path(source).name: place for source, place, _ in (each.split(":") for each in services["grafana"]["volumes"])
    }
    (provider,) = yaml.safe_load((MONITORING / "grafana" / "dashboards.yml").read_text())["providers"]
    assert Path(places["grafana-dashboard.json"]).parent == Path(provider["options"]["path"])
    (source,) = yaml.safe_load((MONITORING / "grafana" / "datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services


def test_deployments_wait_longer_than_a_consumer_takes_to_stop():
    unit = (DEPLOY / "delayq-consumer@.service").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["consumer"]
    consumer = next(each for each in deployments() if each["metadata"]["name"] == "emails-consumer")
    (container,) = consumer["spec"]["template"]["spec"]["containers"]
    given = {
        "systemd": (int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]), command_lines()[0]),
        "compose": (parse_duration(compose["stop_grace_period"]), compose["command"]),
        "kubernetes": (consumer["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], container["args"]),
    }
    given["docker stop"] = (10, command_lines()[1])
    for seconds, words in given.values():
        wanted = parse_duration(option(words, "--shutdown-timeout") or "")
        assert seconds >= wanted + (SUPERVISOR_MARGIN if "--processes" in words else 5)


def test_scaled_deployments_exist():
    scaled = yaml.safe_load((DEPLOY / "kubernetes" / "scaling.yml").read_text())
    assert scaled["spec"]["scaleTargetRef"]["name"] in [each["metadata"]["name"] for each in deployments()]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path):
    program = tmp_path / "delayq"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    text = (DEPLOY / "delayq-consumer@.service").read_text()
    unit = tmp_path / "delayq-consumer@tasks:emails.service"
    unit.write_text(re.sub(r"^ExecStart=\S*/delayq", f"ExecStart={program}", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
