"""What was refused is told: who wanted what of which queue, and why not; also where no page has ever seen the form."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from delayq import Queue
from delayq.web import Token, Users, audit, user_line
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter, act, log_in, token_on
from tests.web.test_actions import finished

pytestmark = pytest.mark.usefixtures("cheap_passwords")

EMAILS = "/main/queues/emails"
TOKEN = "a token that is long enough"
BEGINNING = {"who": "local", "server": "main", "queue": "emails"}


@pytest.fixture
def lines() -> list[Any]:
    return []


@pytest.fixture
def client(enter: Enter, queue: Queue, lines: list[Any]) -> Client:
    queue.send("hello", delay=60, id="m")
    return enter(audit=lines.append)


REFUSED: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "an action that is none": (
        "/confirm",
        {"act": "explode", "ids": "m"},
        {"action": "explode", "outcome": "refused: unknown action 'explode'; expected one of now, reschedule,"},
    ),
    "no message": ("/run", {"act": "cancel"}, {"action": "cancel", "outcome": "refused: no message is ticked"}),
    "a time that is none": (
        "/run",
        {"act": "reschedule", "ids": "m", "when": "soon", "once": "o"},
        {"action": "reschedule", "outcome": "refused: 'soon' is neither a length of time"},
    ),
    "a form without its word": (
        "/examine",
        {},
        {"action": "examine", "outcome": "refused: the form has no word of its own"},
    ),
    "a schedule's action that is none": (
        "/schedules/nightly",
        {"act": "burn"},
        {
            "action": "schedule burn",
            "schedule": "nightly",
            "outcome": "refused: unknown action 'burn'; expected one of",
        },
    ),
    "a payload that is no JSON": (
        "/messages/m/edit",
        {"died": "1", "payload": "{"},
        {"action": "edit", "id": "m", "outcome": "refused: the field payload is not JSON"},
    ),
    "a message for no time": (
        "/send",
        {"payload": "1", "when": "soon", "once": "o"},
        {"action": "send", "outcome": "refused: 'soon' is neither a length of time"},
    ),
    "a schedule that is none": (
        "/new-schedule",
        {"act": "store", "name": "nightly", "when": "at night", "once": "o"},
        {"action": "add-schedule", "outcome": "refused: schedule 'at night'"},
    ),
    "a setting that is none": (
        "/configure",
        {"act": "apply", "rate": "fast"},
        {"action": "configure", "outcome": "refused: rate 'fast' is not 1 to 100000 messages"},
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_form_leaves_one_line(client: Client, lines: list[Any], what: str):
    path, fields, told = REFUSED[what]
    assert act(client, f"{EMAILS}{path}", **fields).status_code == 400
    (line,) = lines
    assert line["outcome"].startswith(told["outcome"])
    assert line == BEGINNING | told | {"outcome": line["outcome"]}


def test_queue_server_topic_and_task_that_are_not_there_leave_one_line_each(client: Client, lines: list[Any]):
    for path in (
        "/main/queues/none/pause",
        "/away/queues/emails/resume",
        "/main/topics/orders/groups/billing/claim",
        "/main/tasks/gone/stop",
    ):
        assert act(client, path).status_code == 404
    told = [{name: value for name, value in line.items() if name != "outcome"} for line in lines]
    assert told == [
        {"who": "local", "action": "pause", "server": "main", "queue": "none"},
        {"who": "local", "action": "resume", "server": "away", "queue": "emails"},
        {"who": "local", "action": "claim", "server": "main", "topic": "orders", "group": "billing"},
        {"who": "local", "action": "stop", "server": "main", "task": "gone"},
    ]
    assert lines[0]["outcome"] == "refused: There is no queue none on main: nothing was ever sent to it."


def test_server_that_is_away_is_told_as_a_failure(
    enter: Enter, queue: Queue, redis_server: RedisServer, lines: list[Any]
):
    queue.send("hello")
    client = enter(servers={"main": "redis://127.0.0.1:1", "near": redis_server.url}, audit=lines.append)
    token = token_on(client.get("/near/queues/emails").text)
    assert client.post(f"{EMAILS}/pause", data={"csrf": token}, headers=OWN).status_code == 503
    assert [line["outcome"].partition(":")[0] for line in lines] == ["failed"]


@pytest.mark.parametrize("headers", [OWN, {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}])
def test_forged_form_leaves_one_line(client: Client, lines: list[Any], headers: dict[str, str]):
    assert client.post(f"{EMAILS}/run", data={"act": "purge", "csrf": "forged"}, headers=headers).status_code == 403
    assert lines == [
        BEGINNING
        | {
            "action": "purge",
            "outcome": "refused: The form is out of date, or of another site: go back, reload, try again.",
        }
    ]


def test_who_may_only_look_leaves_a_line_with_the_name(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Users([user_line("bob", "viewer", "bob's own")]), audit=lines.append)
    log_in(client, "bob's own", "bob")
    assert act(client, f"{EMAILS}/pause").status_code == 403
    assert lines[1:] == [
        BEGINNING | {"who": "bob", "action": "pause", "outcome": "refused: You may look, but not change anything."}
    ]


def test_form_of_too_many_fields_or_bytes_leaves_one_line(client: Client, lines: list[Any]):
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    assert client.post(f"{EMAILS}/pause", content="&a=" * 1001, headers=headers).status_code == 400
    assert client.post(f"{EMAILS}/pause", content=b"x" * (5 << 20), headers=headers).status_code == 413
    assert [line["outcome"] for line in lines] == [
        "refused: The form has more than 1000 fields.",
        "refused: The form is too large, or did not arrive.",
    ]


def test_login_that_was_forged_is_told_with_the_name_and_the_address(enter: Enter, lines: list[Any]):
    client = enter(login=Users([user_line("ann", "operator", "correct horse")]), audit=lines.append)
    assert client.post("/login", data={"name": "ann", "secret": "correct horse"}, headers=OWN).status_code == 403
    (line,) = lines
    assert (line["who"], line["action"], line["from"]) == ("ann", "login", "127.0.0.1")
    assert line["outcome"].startswith("refused: The form is out of date")


def test_login_by_a_token_that_was_forged_names_nobody_else(enter: Enter, lines: list[Any]):
    client = enter(login=Token(TOKEN), audit=lines.append)
    assert client.post("/login", data={"name": "ann", "secret": TOKEN}, headers=OWN).status_code == 403
    assert [(line["who"], line["action"]) for line in lines] == [("token", "login")]


def test_wrong_token_of_a_program_is_told_and_the_right_one_is_no_login(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Token(TOKEN), audit=lines.append)
    assert client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert lines == []
    client.cookies.clear()
    client.get("/login", headers={"authorization": "Bearer a guess"})
    assert lines == [{"who": "token", "action": "login", "from": "127.0.0.1", "outcome": "refused"}]
    client.get("/", headers={"authorization": "Basic of a proxy"})
    assert len(lines) == 1


def test_stranger_leaves_no_line_with_an_action(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Token(TOKEN), audit=lines.append)
    token = token_on(client.get("/login").text)
    assert client.post(f"{EMAILS}/pause", data={"csrf": token}, headers=OWN).status_code == 401
    assert client.post("/nowhere", data={"csrf": token}, headers=OWN).status_code == 401
    assert lines == []


def test_what_was_asked_for_is_cut_in_a_line(client: Client, lines: list[Any]):
    act(client, f"{EMAILS}/confirm", act="x" * 100_000, ids="m")
    task = act(client, f"{EMAILS}/run", act="cancel", ids="x" * 100_000, state="pending", once="o")
    finished(client, task.headers["location"])
    assert len(lines) == 2
    for line in lines:
        assert all(len(text) <= audit.MOST for value in line.values() for text in value)
        assert max(len(str(value)) for value in line.values()) <= audit.MOST + len("['']")


def test_bytes_that_are_no_text_are_told_as_such(client: Client, lines: list[Any]):
    act(client, "/main/queues/%25FF%0Aaudit/pause")
    assert lines[0]["queue"] == "\\xff\naudit"


def test_line_break_in_what_was_asked_for_begins_no_line_of_the_log(
    enter: Enter, queue: Queue, caplog: pytest.LogCaptureFixture
):
    assert not structlog.is_configured()
    caplog.set_level("INFO", "delayq")
    queue.send("hello")
    act(enter(), f"{EMAILS}/confirm", act="x\naudit action=purge", ids="m")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "delayq"]
    assert r"action='x\naudit action=purge'" in line
