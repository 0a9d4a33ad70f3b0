from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from delayq import Queue
from delayq.doctor import server_health
from delayq.operations.doctor.server import ServerHealth, ask
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys

SAFE = ServerHealth(
    run_id="x",
    version="8.2.3",
    clock_offset=0.01,
    maxmemory_policy="noeviction",
    append_only=True,
    save_points="",
    disk_ok=True,
    used_memory=50,
    maxmemory=100,
    script_limit_ms=5000,
)


def test_health_of_a_server_is_read_through_a_queue_that_need_not_exist(redis_client: redis.Redis):
    health = server_health(Queue("none", redis=redis_client))
    assert (health.version, health.disk_ok) == (redis_client.info()["redis_version"], True)
    assert [finding.kind for finding in health.dangers()] == ["persistence"]
    assert redis_client.dbsize() == 0


@pytest.mark.parametrize("server", [SAFE, ServerHealth()], ids=["safe", "silent"])
def test_safe_or_unreadable_settings_give_no_finding(server: ServerHealth):
    assert list(server.dangers()) == []


@pytest.mark.parametrize("version", ["6.2.0", "6.10.1", "7.0.15", "255.255.255"])
def test_supported_version_gives_no_finding(version: str):
    assert list(replace(SAFE, version=version).dangers()) == []


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "2.8"])
def test_old_version_is_an_error(version: str):
    (finding,) = replace(SAFE, version=version).dangers()
    assert (finding.kind, finding.severity, finding.text) == ("version", "error", f"the server is Redis {version}")


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"clock_offset": 1.2}, "clock", "the server's clock is 1.2s ahead of this machine's"),
        ({"clock_offset": -3600.0}, "clock", "the server's clock is 1h behind this machine's"),
        ({"maxmemory_policy": "volatile-lru"}, "policy", "maxmemory-policy is volatile-lru"),
        ({"append_only": False}, "persistence", "keeps nothing on disk"),
        ({"disk_ok": False}, "disk", "last write to its disk failed"),
        ({"used_memory": 91}, "memory", "uses 91 of 100 bytes"),
        ({"script_limit_ms": 99}, "script-limit", "has run for 99 ms"),
    ],
)
def test_dangerous_setting_gives_a_warning_with_its_value_and_a_remedy(change: dict[str, object], kind: str, text: str):
    (finding,) = replace(SAFE, **change).dangers()  # type: ignore[arg-type]  # fields by name
    assert (finding.kind, finding.severity) == (kind, "warning")
    assert text in finding.text
    assert finding.remedy


@pytest.mark.parametrize(
    "change",
    [
        {"clock_offset": 1.0},
        {"append_only": False, "save_points": "3600 1"},
        {"append_only": False, "save_points": None},
        {"used_memory": 90},
        {"used_memory": 10**9, "maxmemory": 0},
        {"script_limit_ms": 0},
        {"script_limit_ms": 100},
    ],
)
def test_values_just_within_the_bounds_give_no_finding(change: dict[str, object]):
    assert list(replace(SAFE, **change).dangers()) == []  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(("there", "offset"), [(100.5, 0.0), (106.0, 0.0), (110.0, 4.0), (95.5, -4.5)])
def test_clock_error_excludes_the_time_that_the_answer_took(
    there: float, offset: float, monkeypatch: pytest.MonkeyPatch
):
    moments = iter([100.0, 106.0])
    monkeypatch.setattr("delayq.operations.doctor.server.time", SimpleNamespace(time=lambda: next(moments)))
    steps = ask(QueueCommands(QueueKeys("delayq", "jobs"), str))
    next(steps)
    replies: list[Any] = [{}, (int(there), round(there % 1 * 1_000_000)), {}, {}]
    with pytest.raises(StopIteration) as raised:
        steps.send(replies)
    assert raised.value.value.clock_offset == offset
