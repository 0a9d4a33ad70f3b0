"""The HTTP API: operations that change something, their rights and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import delayq.aio
from delayq import Outgoing, Queue, Topic
from delayq.errors import ServerUnreachable
from delayq.web import Token, User, Users, user_line
from delayq.web.api.idempotency import KeptAnswers
from delayq.web.api.operation import Operation
from delayq.web.api.table import OPERATIONS
from tests.harness.servers import RedisServer
from tests.harness.web.api import (
    BEARER,
    BILLING,
    BODIES,
    EMAILS,
    MAIN,
    ORDERS,
    TOKEN,
    is_problem,
    path_of,
    stocked_with,
)
from tests.web.conftest import OWN, Client, Enter, log_in, token_on

ACTING = [each for each in OPERATIONS if each.acts]


@pytest.fixture
def topic(queue: Queue, redis_server: RedisServer) -> Iterator[Topic]:
    with stocked_with(queue, redis_server.url) as topic:
        yield topic


@pytest.fixture
def stocked(queue: Queue, topic: Topic) -> Queue:  # noqa: ARG001  # it is stocked, too
    return queue


def snapshot(queue: Queue) -> dict[bytes, bytes | None]:
    client = queue._executor.client
    return {key: client.dump(key) for key in client.scan_iter()}


def act(client: Client, path: str, body: Any = None, **headers: str) -> Any:
    """Send JSON as a program does."""
    client.cookies.clear()
    return client.post(path, json={} if body is None else body, headers=headers)


def ended(client: Client, begun: Any) -> Any:
    """Return a job once it has ended."""
    assert begun.status_code == 202, begun.text
    job = begun.json()
    while job["status"] == "running":
        job = client.get(f"{MAIN}/jobs/{job['id']}").json()
    return job


def test_message_names_the_task_that_it_is_for(enter: Enter, stocked: Queue):
    client = enter()
    sent = act(client, f"{EMAILS}/messages", {"payload": {"user_id": 42}, "task": "welcome", "id": "for a task"})
    assert sent.status_code == 200, sent.text
    assert client.get(f"{EMAILS}/messages/for a task").json()["message"]["task"] == "welcome"
    assert client.get(f"{EMAILS}/messages/m").json()["message"]["task"] is None
    for payload, task in ((5, "welcome"), ({}, "")):
        refused = act(client, f"{EMAILS}/messages", {"payload": payload, "task": task})
        assert is_problem(refused, 400)
        assert "task" in refused.text
    assert stocked.get("for a task") is not None


@pytest.mark.parametrize("operation", ACTING, ids=lambda each: each.name)
def test_viewer_changes_nothing(enter: Enter, stocked: Queue, operation: Operation):
    before, body = snapshot(stocked), BODIES.get(operation.name, {})
    viewers: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"read_only": True}, {}),
        ({"login": lambda _: User("ann", "viewer")}, {}),
        ({"login": lambda _: None}, {}),
        ({"login": Token(TOKEN)}, {}),
        ({"login": Token(TOKEN)}, {"authorization": "Bearer a guess"}),
        ({"login": Token(TOKEN, "viewer")}, BEARER),
    ]
    for options, headers in viewers:
        answer = act(enter(**options), path_of(operation), body, **headers)
        assert answer.status_code in {401, 403}
        assert is_problem(answer, answer.status_code)
        assert "set-cookie" not in answer.headers
    assert snapshot(stocked) == before


@pytest.mark.parametrize("operation", ACTING, ids=lambda each: each.name)
def test_operator_with_the_token_acts_and_is_audited(enter: Enter, stocked: Queue, operation: Operation):
    lines: list[Any] = []
    client = enter(login=Token(TOKEN), audit=lines.append)
    path = path_of(operation).replace("/messages/m/edit", "/messages/dead/edit")
    if operation.name in {"stop_job", "stop_task"}:
        begun = act(client, f"{EMAILS}/examine", **BEARER)
        path = path.replace("none", begun.json()["id"])
    answer = act(client, path, BODIES.get(operation.name), **BEARER)
    assert answer.status_code == operation.status, answer.text
    assert "set-cookie" not in answer.headers
    if operation.status == 202:
        job = answer.json()
        while job["status"] == "running":
            job = client.get(f"{MAIN}/jobs/{job['id']}", headers=BEARER).json()
        assert job["status"] == "done", job
    found = [(each["who"], each["action"], each["server"], each["outcome"]) for each in lines]
    assert ("token", operation.action, "main", "done") in found, found
    assert stocked.stats().missing == 0


@pytest.mark.parametrize("operation", ACTING, ids=lambda each: each.name)
def test_forged_or_ambiguous_request_changes_nothing(enter: Enter, stocked: Queue, operation: Operation):
    before, body, client = snapshot(stocked), BODIES.get(operation.name, {}), enter()
    token = token_on(client.get("/main/queues/emails/messages").text)  # a page that keeps no sample
    path = path_of(operation)
    for headers, status in (
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"sec-fetch-site": "cross-site", "x-csrf-token": token}, 403),
        ({"sec-fetch-site": "same-site", "x-csrf-token": token}, 403),
        ({"origin": "http://evil.example", "x-csrf-token": token}, 403),
        ({"origin": "null"}, 403),
        (OWN, 403),
        (OWN | {"x-csrf-token": "0" * 128}, 403),
        ({"cookie": "of=something"}, 403),
    ):
        assert is_problem(client.post(path, json=body, headers=headers), status), headers
    assert is_problem(client.post(path, json=body | {"none": 1}, headers=OWN | {"x-csrf-token": token}), 400)
    assert is_problem(client.request("DELETE", path), 405)
    assert snapshot(stocked) == before


def test_browser_acts_with_the_token_of_its_session(enter: Enter, stocked: Queue):
    client = enter(login=Token(TOKEN))
    log_in(client, TOKEN)
    token = token_on(client.get("/main/queues/emails").text)
    answer = client.post(f"{EMAILS}/pause", json={}, headers=OWN | {"x-csrf-token": token})
    assert answer.status_code == 200
    assert stocked.stats().paused_since is not None


@pytest.mark.usefixtures("cheap_passwords")
def test_stored_password_of_a_browser_is_not_enough_to_act(enter: Enter, stocked: Queue):
    client = enter(login=Users([user_line("ann", "operator", "correct horse")]))
    known = {"authorization": "Basic YW5uOmNvcnJlY3QgaG9yc2U="}
    assert is_problem(client.post(f"{EMAILS}/pause", json={}, headers=OWN | known), 403)
    assert stocked.stats().paused_since is None
    assert act(client, f"{EMAILS}/pause", **known).status_code == 200


def test_message_is_sent_exactly_as_written(enter: Enter, queue: Queue):
    client = enter()
    assert is_problem(act(client, f"{EMAILS}/messages", {"payload": 1}), 404)
    written = b'{"n": 1.50, "big": 123456789012345678901234567890}'
    body = b'{"payload": ' + written + b', "id": "m", "headers": {"raw": {"base64": "/w=="}}}'
    sent = client.post(f"{EMAILS}/messages?create=true", content=body, headers={"content-type": "application/json"})
    assert (sent.status_code, sent.json()["id"], sent.json()["created"]) == (200, "m", True)
    info = queue.get("m")
    assert info is not None
    assert info.body == written
    assert info.headers == {"raw": b"\xff"}
    again = act(client, f"{EMAILS}/messages", {"payload": 2, "id": "m"})
    assert again.json()["created"] is False
    refused = act(client, f"{EMAILS}/messages", {"payload": 2, "id": "m", "on_conflict": "error"})
    assert is_problem(refused, 409)
    assert queue.stats().sent == 1


def test_send_has_the_options_of_the_library(enter: Enter, stocked: Queue):
    client, at = enter(), "2099-01-02T03:04:05.678Z"
    options = {"max_retries": 7, "timeout_seconds": 1.5, "expires_in_seconds": 9e9, "headers": {"k": 1}}
    sent = act(client, f"{EMAILS}/messages", {"payload": None, "id": "x", "at": at} | options).json()
    assert sent["due_at"] == "2099-01-02T03:04:05.678000Z"
    seen = client.get(f"{EMAILS}/messages/x").json()["message"]
    assert (seen["max_retries"], seen["timeout_seconds"], seen["headers"], seen["payload"]) == (7, 1.5, {"k": 1}, None)
    assert seen["expires_at"] > "2300"
    assert stocked.stats().scheduled == 4


def test_all_messages_are_checked_before_one_is_sent(enter: Enter, stocked: Queue):
    client, before = enter(), stocked.stats().sent
    wrong = {"messages": [{"payload": n, "id": f"x{n}"} for n in range(5)] + [{"payload": 1, "id": "a\nb"}]}
    refused = act(client, f"{EMAILS}/messages/batch", wrong)
    assert is_problem(refused, 400)
    assert refused.json()["field"] == "messages[5].id"
    assert stocked.stats().sent == before
    sent = act(client, f"{EMAILS}/messages/batch", {"messages": wrong["messages"][:5]}).json()
    assert [each["id"] for each in sent["messages"]] == [f"x{n}" for n in range(5)]
    assert stocked.stats().sent == before + 5


WRONG: dict[str, tuple[str, Any, str | None]] = {
    "no payload": (f"{EMAILS}/messages", {}, "payload"),
    "two payloads": (f"{EMAILS}/messages", {"payload": 1, "payload_base64": ""}, "payload_base64"),
    "invalid base64": (f"{EMAILS}/messages", {"payload_base64": "?"}, "payload_base64"),
    "header of invalid base64": (f"{EMAILS}/messages", {"payload": 1, "headers": {"k": {"base64": "?"}}}, "headers.k"),
    "two due times": (f"{EMAILS}/messages", {"payload": 1, "delay_seconds": 1, "at": "2099-01-01T00:00:00Z"}, "at"),
    "negative delay": (f"{EMAILS}/messages", {"payload": 1, "delay_seconds": -1}, "delay_seconds"),
    "long delay": (f"{EMAILS}/messages", {"payload": 1, "delay_seconds": 1e15}, "delay_seconds"),
    "text for a number": (f"{EMAILS}/messages", {"payload": 1, "delay_seconds": "1"}, "delay_seconds"),
    "naive time": (f"{EMAILS}/messages", {"payload": 1, "at": "2099-01-01T00:00:00"}, "at"),
    "time before 1970": (f"{EMAILS}/messages", {"payload": 1, "at": "1969-01-01T00:00:00Z"}, "at"),
    "other name": (f"{EMAILS}/messages", {"payload": 1, "countdown": 1}, "countdown"),
    "too many": (f"{EMAILS}/messages/batch", {"messages": [{"payload": 1}] * 1001}, "messages"),
    "large payload": (f"{EMAILS}/messages", {"payload": "x" * (1 << 20)}, "payload"),
    "no ids": (f"{EMAILS}/messages/cancel", {"ids": []}, "ids"),
    "no due time": (f"{EMAILS}/messages/reschedule", {"ids": ["m"]}, None),
    "unknown state": (f"{EMAILS}/messages/requeue-matching", {"filter": {"state": "pending"}}, "filter.state"),
    "invalid age": (
        f"{EMAILS}/messages/cancel-matching",
        {"filter": {"state": "dead", "older": "x"}},
        "filter.older",
    ),
    "invalid rate": (f"{EMAILS}/messages/requeue-matching", {"filter": {"state": "dead"}, "rate": "x"}, "rate"),
    "purge unconfirmed": (f"{EMAILS}/purge", {"state": "dead", "confirm": "emial"}, "confirm"),
    "purge of running messages": (f"{EMAILS}/purge", {"state": "unack", "confirm": "emails"}, "state"),
    "pause without length": (f"{EMAILS}/pause", {"for_seconds": 0}, "for_seconds"),
    "long pause": (f"{EMAILS}/pause", {"for_seconds": 4e7}, "for_seconds"),
    "expression": (f"{EMAILS}/schedules", {"name": "x", "when": "whenever"}, "when"),
    "time zone": (f"{EMAILS}/schedules", {"name": "x", "when": "@daily", "timezone": "Mars"}, "timezone"),
    "name of a schedule": (f"{EMAILS}/schedules", {"name": "", "when": "@daily"}, "name"),
    "rate of a queue": (f"{EMAILS}/configure", {"rate": "fast", "max_dead": 5}, "rate"),
    "limit of a queue": (f"{EMAILS}/configure", {"concurrency": 0}, "concurrency"),
    "two positions": (f"{BILLING}/move", {"position": "0", "at": "2020-01-01T00:00:00Z"}, "at"),
    "position": (f"{ORDERS}/groups", {"name": "x", "position": "first"}, "position"),
    "group unconfirmed": (f"{BILLING}/destroy", {"confirm": "biling"}, "confirm"),
    "trim unconfirmed": (f"{ORDERS}/trim", {"keep_records": 0, "confirm": ""}, "confirm"),
    "trim without a target": (f"{ORDERS}/trim", {"confirm": "orders"}, "keep_records"),
    "key of a record": (f"{ORDERS}/records/delete", {"keys": ["1-1"]}, "keys"),
    "id of a record": (f"{ORDERS}/records", {"payload": 1, "id": "x"}, "id"),
    "consumer": (f"{BILLING}/claim", {"consumer": "none", "idle_seconds": 0}, "consumer"),
    "keys": (f"{BILLING}/dead-letters/delete", {"keys": ["x"]}, "keys"),
    "all unconfirmed": (f"{BILLING}/dead-letters/delete-all", {"confirm": ""}, "confirm"),
}


@pytest.mark.parametrize("case", WRONG)
def test_error_is_named_and_changes_nothing(enter: Enter, stocked: Queue, case: str):
    path, body, field = WRONG[case]
    before = snapshot(stocked)
    answer = act(enter(), path, body)
    assert is_problem(answer, 400)
    assert answer.json().get("field") == field, answer.json()
    assert snapshot(stocked) == before


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"\xff"', b"[" * 100_000, b'{"payload": "\\ud800"}', b'{"payload": "\xff"}']
)
def test_body_that_is_not_a_json_object_changes_nothing(enter: Enter, stocked: Queue, body: bytes):
    sent = enter().post(f"{EMAILS}/messages", content=body, headers={"content-type": "application/json"})
    assert is_problem(sent, 400)
    assert stocked.stats().sent == 4


def test_too_large_body_is_a_problem_however_it_is_sent(enter: Enter, stocked: Queue):
    lines: list[Any] = []
    client = enter(audit=lines.append)
    large = b'{"payload": "' + b"x" * (5 << 20) + b'"}'
    for content in (large, _pieces(large)):
        answer = client.post(f"{EMAILS}/messages", content=content, headers={"content-type": "application/json"})
        assert is_problem(answer, 413)
    assert [(each["action"], each["outcome"].partition(":")[0]) for each in lines] == [("send", "refused")] * 2
    assert stocked.stats().sent == 4


async def _pieces(content: bytes) -> Any:
    for start in range(0, len(content), 1 << 20):
        yield content[start : start + (1 << 20)]


def test_action_on_named_messages_reports_each_outcome(enter: Enter, stocked: Queue):
    client = enter()
    moved = act(client, f"{EMAILS}/messages/reschedule", {"ids": ["m", "dead", "none"], "delay_seconds": 5}).json()
    assert moved == {"outcomes": {"m": "rescheduled", "dead": "dead", "none": "unknown"}, "done": 1}
    back = act(client, f"{EMAILS}/messages/requeue", {"ids": ["dead", "m"], "delay_seconds": 60}).json()
    assert back == {"outcomes": {"dead": "requeued", "m": "left"}, "done": 1}
    buried = act(client, f"{EMAILS}/messages/bury", {"ids": ["raw"]}).json()
    assert buried["outcomes"] == {"raw": "buried"}
    gone = act(client, f"{EMAILS}/messages/cancel", {"ids": ["m", "m"]}).json()
    assert gone == {"outcomes": {"m": "cancelled"}, "done": 1}
    stopped = act(client, f"{EMAILS}/messages/stop", {"ids": ["none"]}).json()
    assert stopped == {"outcomes": {"none": "unknown"}, "done": 0}
    assert (stocked.stats().dead, stocked.stats().cancelled, stocked.stats().missing) == (1, 1, 0)


def test_named_and_matching_messages_become_due_now(enter: Enter, stocked: Queue):
    lines: list[Any] = []
    client = enter(audit=lines.append)
    soon = act(client, f"{EMAILS}/messages/now", {"ids": ["m", "dead", "none"]}).json()
    assert soon == {"outcomes": {"m": "rescheduled", "dead": "dead", "none": "unknown"}, "done": 1}
    stocked.send_many([Outgoing(n, id=f"x{n}", delay=100) for n in range(30)])
    before = stocked.stats().due
    done = ended(client, act(client, f"{EMAILS}/messages/now-matching", {"filter": {"state": "pending"}}))
    assert (done["status"], done["title"]) == ("done", "Run now all scheduled")
    assert stocked.stats().due - before >= 30
    assert {(each["action"], each["outcome"]) for each in lines} == {("now", "done"), ("now", "began")}


def test_task_acts_on_all_matches_after_a_dry_run(enter: Enter, stocked: Queue):
    stocked.send_many([Outgoing(n, id=f"x{n}", delay=100, headers={"tenant": "globex"}) for n in range(30)])
    client = enter()
    meant = {"filter": {"state": "pending", "header": "tenant=globex"}}
    dry = ended(client, act(client, f"{EMAILS}/messages/cancel-matching", meant | {"dry_run": True}))
    assert (dry["told"], dry["done"]) == (["30 match."], None)
    assert stocked.stats().cancelled == 0
    done = ended(client, act(client, f"{EMAILS}/messages/cancel-matching", meant))
    assert (done["status"], done["done"], done["who"]) == ("done", 30, "local")
    assert stocked.stats().cancelled == 30
    assert client.get(f"{MAIN}/jobs").json()["jobs"][0]["id"] == done["id"]
    back = ended(
        client, act(client, f"{EMAILS}/messages/requeue-matching", {"filter": {"state": "dead"}, "rate": "100/s"})
    )
    assert back["done"] == 1
    assert stocked.stats().dead == 0


def test_queue_is_purged_of_a_state(enter: Enter, stocked: Queue):
    client = enter()
    done = ended(client, act(client, f"{EMAILS}/purge", {"state": "pending", "confirm": "emails"}))
    assert done["done"] == 3
    assert (stocked.stats().pending, stocked.stats().purged, stocked.stats().dead) == (0, 3, 1)


def test_dead_letter_is_edited_unless_it_has_died_again(enter: Enter, stocked: Queue):
    client = enter()
    stale = {"payload": 1, "died_at": "2020-01-01T00:00:00Z"}
    assert is_problem(act(client, f"{EMAILS}/messages/dead/edit", stale), 409)
    assert is_problem(act(client, f"{EMAILS}/messages/m/edit", {"payload": 1}), 404)
    died_at = client.get(f"{EMAILS}/messages/dead").json()["message"]["died_at"]
    body = {"payload": {"to": "carol"}, "headers": {"k": "v"}, "died_at": died_at, "timeout_seconds": None}
    assert act(client, f"{EMAILS}/messages/dead/edit", body).json() == {"id": "dead"}
    info = stocked.get("dead")
    assert info is not None
    assert (info.state, info.payload, info.headers) == ("pending", {"to": "carol"}, {"k": "v"})


def test_queue_is_paused_and_resumed(enter: Enter, stocked: Queue):
    client = enter()
    paused = act(client, f"{EMAILS}/pause", {"for_seconds": 600}).json()
    assert paused["paused_until"] > paused["paused_since"]
    assert stocked.stats().paused_since is not None
    assert act(client, f"{EMAILS}/resume").json() == {"paused_since": None, "paused_until": None}
    assert stocked.stats().paused_since is None


def test_schedules_are_added_paused_run_and_removed(enter: Enter, stocked: Queue):
    client, path = enter(), f"{EMAILS}/schedules"
    wanted = {
        "name": "hourly",
        "when": "0 * * * *",
        "payload": {"n": 1},
        "timezone": "Europe/Berlin",
        "jitter_seconds": 5,
    }
    added = act(client, path, wanted).json()
    assert {name: added[name] for name in wanted} == wanted
    assert [each["name"] for each in client.get(path).json()["schedules"]] == ["hourly", "nightly"]
    assert act(client, f"{path}/hourly/pause").json()["paused"] is True
    assert act(client, f"{path}/hourly/resume").json()["paused"] is False
    sent = act(client, f"{path}/hourly/run").json()
    assert sent["id"].startswith("hourly@run-")
    assert act(client, f"{path}/hourly/remove").json() == {"name": "hourly"}
    for verb in ("pause", "resume", "run", "remove"):
        assert is_problem(act(client, f"{path}/hourly/{verb}"), 404)
    assert [each.name for each in stocked.schedules.list()] == ["nightly"]


def test_schedule_runs_a_task(enter: Enter, stocked: Queue):
    client, path = enter(), f"{EMAILS}/schedules"
    added = act(client, path, {"name": "clean", "when": "@daily", "payload": {"days": 2}, "task": "clean_up"}).json()
    assert (added["task"], added["payload"], added["headers"]) == ("clean_up", {"days": 2}, {})
    assert act(client, path, {"name": "plain", "when": "@daily", "task": "clean_up"}).json()["payload"] == {}
    sent = stocked.get(act(client, f"{path}/clean/run").json()["id"])
    assert sent is not None
    assert (sent.task, sent.payload) == ("clean_up", {"days": 2})
    assert [each["task"] for each in client.get(path).json()["schedules"]] == ["clean_up", None, "clean_up"]
    refused = act(client, path, {"name": "bad", "when": "@daily", "payload": 5, "task": "clean_up"})
    assert (refused.status_code, refused.json()["field"]) == (400, "task")


def test_records_are_published_and_claimed(enter: Enter, topic: Topic):
    client = enter()
    done = act(client, f"{ORDERS}/records", {"payload": {"n": 3}, "headers": {"k": "v"}, "key": "a"}).json()
    assert (done["due_at"], done["created"]) == (None, True)
    later = act(client, f"{ORDERS}/records", {"payload": 4, "delay_seconds": 600, "id": "later"}).json()
    assert (later["id"], later["due_at"] is None) == ("later", False)
    assert [each.payload for each in topic.range(reverse=True, count=1)] == [{"n": 3}]
    assert is_problem(act(client, f"{MAIN}/topics/new/records", {"payload": 1}), 404)
    assert act(client, f"{MAIN}/topics/new/records?create=true", {"payload": 1}).status_code == 200
    claimed = act(client, f"{BILLING}/claim", {"consumer": "two", "idle_seconds": 0, "new": True}).json()
    assert len(claimed["ids"]) == 1
    assert topic.group("billing").unacked("two")[0].id == claimed["ids"][0]


def test_configuring_a_queue_keeps_settings_that_are_left_out(enter: Enter, stocked: Queue):
    client = enter()
    answer = act(client, f"{EMAILS}/configure", {"rate": "5/s", "max_dead": 9, "backoff": "fixed:10s"}).json()
    assert (answer["rate"], answer["max_dead"], answer["events"]) == ("5/s", 9, 100_000)
    answer = act(client, f"{EMAILS}/configure", {"rate": None}).json()
    assert (answer["rate"], answer["max_dead"]) == (None, 9)
    assert stocked.configuration().backoff is not None


def test_groups_are_created_moved_and_destroyed(enter: Enter, topic: Topic):
    client, path = enter(), f"{ORDERS}/groups"
    assert act(client, path, {"name": "shipping"}).json() == {"name": "shipping", "created": True}
    assert act(client, path, {"name": "shipping", "position": "0"}).json()["created"] is False
    assert topic.group("shipping").lag() == 0
    moved = act(client, f"{path}/shipping/move", {"position": "0"}).json()
    assert (moved["name"], moved["lag"]) == ("shipping", 3)
    assert act(client, f"{path}/shipping/destroy", {"confirm": "shipping"}).json() == {"name": "shipping"}
    for verb, body in (("move", {}), ("destroy", {"confirm": "shipping"})):
        assert is_problem(act(client, f"{path}/shipping/{verb}", body), 404)
    assert [each.name for each in topic.groups()] == ["billing"]


def test_records_are_deleted_and_trimmed(enter: Enter, topic: Topic):
    client = enter()
    first = client.get(f"{ORDERS}/records").json()["records"][0]
    assert act(client, f"{ORDERS}/records/delete", {"keys": [first["key"], "0.1-1"]}).json() == {"done": 1}
    assert [each.payload["n"] for each in topic.range()] == [1, 2]
    done = ended(client, act(client, f"{ORDERS}/trim", {"keep_records": 1, "confirm": "orders"}))
    assert (done["done"], done["topic"]) == (1, "orders")
    assert [each.payload["n"] for each in topic.range()] == [2]
    ended(client, act(client, f"{ORDERS}/trim", {"keep_since": "2999-01-01T00:00:00Z", "confirm": "orders"}))
    assert topic.length() == 0


def test_dead_letters_of_a_group_are_requeued_and_deleted(enter: Enter, topic: Topic):
    client, group = enter(), topic.group("billing")
    (dead,) = client.get(f"{BILLING}/dead-letters").json()["dead_letters"]
    back = ended(client, act(client, f"{BILLING}/dead-letters/requeue", {"keys": [dead["key"]]}))
    assert (back["done"], back["topic"], back["group"], group.dead_length()) == (1, "orders", "billing", 0)
    for record in group.fetch_not_acked("one", 0):
        group.bury(record, "one")
    assert group.dead_length() == 2
    gone = ended(client, act(client, f"{BILLING}/dead-letters/delete-all", {"confirm": "billing"}))
    assert (gone["done"], group.dead_length()) == (2, 0)


def test_request_repeated_with_its_key_acts_once(enter: Enter, topic: Topic):
    client, length = enter(), topic.length()
    key = {"idempotency-key": "f1"}
    first = act(client, f"{ORDERS}/records", {"payload": 1}, **key)
    again = act(client, f"{ORDERS}/records", {"payload": 1}, **key)
    assert (first.status_code, again.content) == (200, first.content)
    assert is_problem(act(client, f"{ORDERS}/records", {"payload": 2}, **key), 409)
    assert topic.length() == length + 1
    begun = [act(client, f"{EMAILS}/examine", **key).json()["id"] for _ in range(2)]
    assert begun[0] == begun[1]
    assert is_problem(act(client, f"{EMAILS}/examine", **{"idempotency-key": "x" * 256}), 400)


def test_refused_request_leaves_its_key_free(enter: Enter, topic: Topic):
    client, key = enter(), {"idempotency-key": "f1"}
    path = f"{MAIN}/topics/new/records"
    assert is_problem(act(client, path, {"payload": 1}, **key), 404)
    with Topic("new", redis=topic._executor.client) as new:
        new.publish(0)
        assert act(client, path, {"payload": 1}, **key).status_code == 200
        assert new.length() == 2


async def _answer(text: bytes) -> bytes:
    return text


def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.api.idempotency.MOST_BYTES", 100)
    kept = KeptAnswers()

    async def fill() -> list[bytes]:
        for n in range(50):
            await kept.once(("ann", "/", str(n)), b"", lambda: _answer(b"x" * 10))
        return [await kept.once(("ann", "/", n), b"", lambda: _answer(b"again")) for n in ("0", "49")]

    assert asyncio.run(fill()) == [b"again", b"x" * 10]
    assert len(kept._kept) <= 11


def test_answer_that_fails_while_others_make_room_does_no_harm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.api.idempotency.MOST_BYTES", 1)
    troubles: list[object] = []
    kept = KeptAnswers()

    async def fail() -> bytes:
        await asyncio.sleep(0)  # the other answer ends just before, and makes room just after
        raise OSError("no answer")

    async def both() -> tuple[bytes | BaseException, bytes | BaseException]:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        bad = kept.once(("ann", "/", "bad"), b"", fail)
        good = kept.once(("ann", "/", "good"), b"", lambda: _answer(b"large"))
        return await asyncio.gather(bad, good, return_exceptions=True)

    bad, good = asyncio.run(both())
    assert (good, type(bad), troubles, kept._kept, kept._bytes) == (b"large", OSError, [], {}, 0)


def test_former_paths_of_jobs_answer_as_before(enter: Enter, stocked: Queue):
    assert stocked.stats().dead == 1
    client = enter()
    done = ended(client, act(client, f"{EMAILS}/examine"))
    assert client.get(f"{MAIN}/tasks").json() == {"tasks": client.get(f"{MAIN}/jobs").json()["jobs"]}
    assert client.get(f"{MAIN}/tasks/{done['id']}").json() == done
    assert act(client, f"{MAIN}/tasks/{done['id']}/stop").json() == done
    pages = "/main/tasks", f"/main/tasks/{done['id']}"
    assert [client.get(each).headers["location"] for each in pages] == ["/main/jobs", f"/main/jobs/{done['id']}"]


def test_this_file_knows_every_operation_that_acts():
    """If you add an operation, add it here, so that the checks of this file cover it."""
    takes_nothing = {"pause_queue", "resume_queue", "examine_queue", "stop_job", "stop_task"} | {
        f"{verb}_schedule" for verb in ("pause", "resume", "run", "remove")
    }
    assert {each.name for each in ACTING} == BODIES.keys() | takes_nothing


def test_batch_beyond_the_limit_of_a_queue_says_which_messages_are_not_stored(enter: Enter, stocked: Queue):
    client = enter()
    most = length(stocked) + 2
    assert act(client, f"{EMAILS}/configure", {"max_length": most}).json()["max_length"] == most
    refused = act(client, f"{EMAILS}/messages/batch", {"messages": [{"payload": n, "id": f"x{n}"} for n in range(5)]})
    assert is_problem(refused, 409)
    assert "3 of 5 messages were not stored ('x2', 'x3', 'x4'; positions from 0: 2–4)" in refused.json()["detail"]
    assert [stocked.get(f"x{n}") is not None for n in range(5)] == [True, True, False, False, False]
    assert is_problem(act(client, f"{EMAILS}/messages", {"payload": 1}), 409)


@pytest.mark.parametrize("cause", ["full", "duplicate"])
def test_request_that_is_refused_in_part_acts_once_with_its_key(cause: str, enter: Enter, stocked: Queue):
    client, key = enter(), {"idempotency-key": "f1"}
    stocked.send("x", id="there", delay=60)
    last: dict[str, object] = {"payload": 3}
    if cause == "duplicate":
        last |= {"id": "there", "on_conflict": "error"}
    else:
        stocked.configure(max_length=length(stocked) + 2)
    body, before = {"messages": [{"payload": 1}, {"payload": 2}, last]}, length(stocked)
    first = act(client, f"{EMAILS}/messages/batch", body, **key)
    stocked.configure(max_length=None)
    again = act(client, f"{EMAILS}/messages/batch", body, **key)
    assert (first.status_code, again.status_code) == (409, 409)
    assert again.json()["detail"] == first.json()["detail"]
    assert length(stocked) == before + 2


@pytest.mark.parametrize("handled", [False, True])
def test_batch_that_was_cut_off_is_not_doubled_by_its_repeat(
    handled: bool, enter: Enter, stocked: Queue, monkeypatch: pytest.MonkeyPatch
):
    client, key, before = enter(), {"idempotency-key": "f1"}, stocked.stats().sent
    body = {"messages": [{"payload": n} for n in range(4)]}
    with monkeypatch.context() as patched:
        patched.setattr("delayq.aio.Queue.send_many", cut_off)
        assert is_problem(act(client, f"{EMAILS}/messages/batch", body, **key), 503)
    assert stocked.stats().sent == before + 2
    if handled:
        stocked.ack(stocked.receive(100))
    again = act(client, f"{EMAILS}/messages/batch", body, **key)
    assert (again.status_code, stocked.stats().sent) == (200, before + 4)
    assert [each["created"] for each in again.json()["messages"]] == [False, False, True, True]
    other = act(client, f"{EMAILS}/messages/batch", body, **{"idempotency-key": "f2"})
    assert [each["created"] for each in other.json()["messages"]] == [True] * 4


async def cut_off(queue: delayq.aio.Queue, messages: Sequence[Outgoing]) -> None:
    """Send the first half, and lose the connection."""
    for each in messages[: len(messages) // 2]:
        options = {name: getattr(each, name) for name in ("id", "on_conflict", "unique_for")}
        await queue.send(each.payload, **options)
    raise ServerUnreachable("the connection is lost")


def test_request_that_is_refused_entirely_leaves_its_key_free(enter: Enter, stocked: Queue):
    client, key = enter(), {"idempotency-key": "f1"}
    stocked.configure(max_length=length(stocked))
    assert is_problem(act(client, f"{EMAILS}/messages", {"payload": 1}, **key), 409)
    stocked.configure(max_length=None)
    assert act(client, f"{EMAILS}/messages", {"payload": 1}, **key).status_code == 200


def length(queue: Queue) -> int:
    """Return how many messages wait or run."""
    stats = queue.stats()
    return stats.pending + stats.ready + stats.retry + stats.unack
