"""Audit lines of refusals: who wanted what on which queue, and why it was refused."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq import Queue
from delayq.web import Dashboard, Token, Users, audit, user_line
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
    "an unknown action": (
        "/confirm",
        {"act": "explode", "ids": "m"},
        {"action": "explode", "outcome": "refused: unknown action 'explode'; expected one of now, reschedule,"},
    ),
    "no message": ("/run", {"act": "cancel"}, {"action": "cancel", "outcome": "refused: no message is selected"}),
    "an invalid time": (
        "/run",
        {"act": "reschedule", "ids": "m", "when": "soon", "once": "o"},
        {"action": "reschedule", "outcome": "refused: 'soon' is not a duration, such as"},
    ),
    "a form without its once": (
        "/examine",
        {},
        {"action": "examine", "outcome": "refused: the form's field once is invalid"},
    ),
    "an unknown action on a schedule": (
        "/schedules/nightly",
        {"act": "burn"},
        {
            "action": "schedule burn",
            "schedule": "nightly",
            "outcome": "refused: unknown action 'burn'; expected one of",
        },
    ),
    "a payload that is not JSON": (
        "/messages/m/edit",
        {"died": "1", "payload": "{"},
        {"action": "edit", "id": "m", "outcome": "refused: the field payload is not JSON"},
    ),
    "a message at an invalid time": (
        "/send",
        {"payload": "1", "when": "soon", "once": "o"},
        {"action": "send", "outcome": "refused: 'soon' is not a duration, such as"},
    ),
    "an invalid schedule": (
        "/new-schedule",
        {"act": "store", "name": "nightly", "when": "at night", "once": "o"},
        {"action": "add-schedule", "outcome": "refused: schedule 'at night'"},
    ),
    "an invalid setting": (
        "/configure",
        {"act": "apply", "rate": "fast"},
        {"action": "configure", "outcome": "refused: rate 'fast' is not 1 to 100,000 messages"},
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_form_is_audited_once(client: Client, lines: list[Any], what: str):
    path, fields, expected = REFUSED[what]
    assert act(client, f"{EMAILS}{path}", **fields).status_code == 400
    (line,) = lines
    assert line["outcome"].startswith(expected["outcome"])
    assert line == BEGINNING | expected | {"outcome": line["outcome"]}


def test_missing_targets_are_audited_once_each(client: Client, lines: list[Any]):
    for path in (
        "/main/queues/none/pause",
        "/away/queues/emails/resume",
        "/main/topics/orders/groups/billing/claim",
        "/main/jobs/gone/stop",
    ):
        assert act(client, path).status_code == 404
    logged = [{name: value for name, value in line.items() if name != "outcome"} for line in lines]
    assert logged == [
        {"who": "local", "action": "pause", "server": "main", "queue": "none"},
        {"who": "local", "action": "resume", "server": "away", "queue": "emails"},
        {"who": "local", "action": "claim", "server": "main", "topic": "orders", "group": "billing"},
        {"who": "local", "action": "stop", "server": "main", "job": "gone"},
    ]
    assert lines[0]["outcome"] == "refused: Server main has no queue none: nothing has been sent to it."


def test_unreachable_server_is_audited_as_a_failure(
    enter: Enter, queue: Queue, redis_server: RedisServer, lines: list[Any]
):
    queue.send("hello")
    client = enter(servers={"main": "redis://127.0.0.1:1", "near": redis_server.url}, audit=lines.append)
    token = token_on(client.get("/near/queues/emails").text)
    assert client.post(f"{EMAILS}/pause", data={"csrf": token}, headers=OWN).status_code == 503
    assert [line["outcome"].partition(":")[0] for line in lines] == ["failed"]


@pytest.mark.parametrize("headers", [OWN, {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}])
def test_forged_form_is_audited_once(client: Client, lines: list[Any], headers: dict[str, str]):
    assert client.post(f"{EMAILS}/run", data={"act": "purge", "csrf": "forged"}, headers=headers).status_code == 403
    assert lines == [
        BEGINNING
        | {
            "action": "purge",
            "outcome": "refused: The form has expired or comes from another site: go back, reload and try again.",
        }
    ]


def test_refused_viewer_is_audited_with_the_name(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Users([user_line("bob", "viewer", "bob's own")]), audit=lines.append)
    log_in(client, "bob's own", "bob")
    assert act(client, f"{EMAILS}/pause").status_code == 403
    assert lines[1:] == [
        BEGINNING | {"who": "bob", "action": "pause", "outcome": "refused: You have read-only access."}
    ]


def test_too_large_form_is_audited_once(client: Client, lines: list[Any]):
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    assert client.post(f"{EMAILS}/pause", content="&a=" * 1001, headers=headers).status_code == 400
    assert client.post(f"{EMAILS}/pause", content=b"x" * (5 << 20), headers=headers).status_code == 413
    assert [line["outcome"] for line in lines] == [
        "refused: The form has more than 1,000 fields.",
        "refused: The request is larger than 4,194,304 bytes.",
    ]


def test_forged_login_is_audited_with_name_and_address(enter: Enter, lines: list[Any]):
    client = enter(login=Users([user_line("ann", "operator", "correct horse")]), audit=lines.append)
    assert client.post("/login", data={"name": "ann", "secret": "correct horse"}, headers=OWN).status_code == 403
    (line,) = lines
    assert (line["who"], line["action"], line["from"]) == ("ann", "login", "127.0.0.1")
    assert line["outcome"].startswith("refused: The form has expired")


def test_forged_token_login_is_audited_without_another_name(enter: Enter, lines: list[Any]):
    client = enter(login=Token(TOKEN), audit=lines.append)
    assert client.post("/login", data={"name": "ann", "secret": TOKEN}, headers=OWN).status_code == 403
    assert [(line["who"], line["action"]) for line in lines] == [("token", "login")]


def test_wrong_token_of_a_program_is_audited_and_a_right_one_is_not(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Token(TOKEN), audit=lines.append)
    assert client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert lines == []
    client.cookies.clear()
    client.get("/login", headers={"authorization": "Bearer a guess"})
    assert lines == [{"who": "token", "action": "login", "from": "127.0.0.1", "outcome": "refused"}]
    client.get("/", headers={"authorization": "Basic of a proxy"})
    assert len(lines) == 1


def test_action_of_a_stranger_is_not_audited(enter: Enter, queue: Queue, lines: list[Any]):
    queue.send("hello")
    client = enter(login=Token(TOKEN), audit=lines.append)
    token = token_on(client.get("/login").text)
    assert client.post(f"{EMAILS}/pause", data={"csrf": token}, headers=OWN).status_code == 401
    assert client.post("/nowhere", data={"csrf": token}, headers=OWN).status_code == 401
    assert lines == []


def test_long_texts_are_cut_in_audit_lines(client: Client, lines: list[Any]):
    act(client, f"{EMAILS}/confirm", act="x" * 100_000, ids="m")
    job = act(client, f"{EMAILS}/run", act="cancel", ids="x" * 100_000, state="pending", once="o")
    finished(client, job.headers["location"])
    assert len(lines) == 2
    for line in lines:
        assert all(len(text) <= audit.MOST for value in line.values() for text in value)
        assert max(len(str(value)) for value in line.values()) <= audit.MOST + len("['']")


def test_bytes_that_are_not_text_are_audited_escaped(client: Client, lines: list[Any]):
    act(client, "/main/queues/%25FF%250Aaudit/pause")
    assert lines[0]["queue"] == "\\xff\naudit"


def test_line_break_in_a_form_starts_no_new_log_line(enter: Enter, queue: Queue, caplog: pytest.LogCaptureFixture):
    assert not structlog.is_configured()
    caplog.set_level("INFO", "delayq")
    queue.send("hello")
    act(enter(), f"{EMAILS}/confirm", act="x\naudit action=purge", ids="m")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "delayq"]
    assert r"action='x\naudit action=purge'" in line


ATTEMPTS = {
    "wrong token": 5 + 20,
    "forged form": 20,
    "too large form": 20,
    "bearer": 5 + 20,
    "unfinished form": 20,
}
"""Ways to fill the log, and the lines that fifty attempts leave: each checked guess has one, and twenty others."""


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_stranger_cannot_fill_the_log_but_each_guess_and_login_is_in_it(enter: Enter, lines: list[Any], attempt: str):
    aborts = attempt == "unfinished form"

    def leaving(inner: Dashboard) -> ASGIApp:
        async def left() -> Message:
            return {"type": "http.disconnect"}

        async def ask(scope: Scope, receive: Receive, send: Send) -> None:
            await inner(scope, left if aborts and scope["method"] == "POST" else receive, send)

        return ask

    client = enter(login=Token(TOKEN), audit=lines.append, around=leaving)
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    for number in range(50):
        if attempt == "bearer":
            client.get("/api/v1/servers", headers={"authorization": f"Bearer {number}"})
        elif attempt == "wrong token":
            log_in(client, f"a guess {number}")
        else:
            client.post("/login", content=b"x" * (9000 if attempt == "too large form" else 9), headers=headers)
    assert {each["outcome"] == "done" for each in lines} == {False}
    assert len(lines) == ATTEMPTS[attempt]
    if attempt in {"forged form", "too large form"}:
        log_in(client, "a guess")
        log_in(client, TOKEN)
        assert [each["outcome"] for each in lines[20:]] == ["refused", "done"]


def test_strangers_of_many_addresses_cannot_fill_the_log(enter: Enter, lines: list[Any]):
    address = [""]

    def elsewhere(inner: Dashboard) -> ASGIApp:
        async def ask(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "client": (address[0], 1)}, receive, send)

        return ask

    client = enter(login=Users([user_line("ann", "operator", "ann's own")]), audit=lines.append, around=elsewhere)
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    for number in range(300):
        address[0] = f"198.51.100.{number % 250}"
        client.post("/login", content=f"name={'x' * 900}", headers=headers)
    assert len(lines) == 200
    assert {len(each["who"]) for each in lines} == {64}
