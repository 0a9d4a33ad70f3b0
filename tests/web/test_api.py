"""The HTTP API: reading, errors and logins."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from delayq import Outgoing, Queue, Topic
from delayq.errors import InvalidInput
from delayq.web import Token, User, Users, app, user_line
from delayq.web.api.messages import Filter, SearchQuery
from delayq.web.api.operation import Operation, _query
from delayq.web.api.table import OPERATIONS
from delayq.web.filters import MessageFilter
from delayq.web.redaction import Redaction
from tests.harness.servers import RedisServer
from tests.harness.web.api import BEARER, BILLING, EMAILS, MAIN, ORDERS, TOKEN, is_problem, path_of, stocked_with
from tests.web.conftest import OWN, Enter, log_in

READING = [each for each in OPERATIONS if not each.acts]


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    with stocked_with(queue, redis_server.url):
        yield queue


@pytest.mark.parametrize("operation", READING, ids=lambda each: each.name)
def test_read_operation_answers_json_without_a_cookie(enter: Enter, stocked: Queue, operation: Operation):
    answer = enter().get(path_of(operation))
    if operation.name in {"get_job", "get_task"}:
        assert is_problem(answer, 404)
    else:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
    assert "set-cookie" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"
    assert stocked.stats().dead == 1


def test_queue_has_its_counts_rates_troubles_and_configuration(enter: Enter, stocked: Queue):
    stocked.pause(600)
    answer = enter().get(EMAILS).json()
    assert {name: answer["summary"][name] for name in ("name", "scheduled", "due", "dead")} == {
        "name": "emails",
        "scheduled": 3,
        "due": 0,
        "dead": 1,
    }
    assert [each["code"] for each in answer["summary"]["troubles"]] == ["dead-growing", "paused"]
    assert answer["summary"]["paused_until"].endswith("Z")
    assert answer["counters"]["sent"] == 4
    assert answer["configuration"]["events"] == 100_000


def test_queues_are_listed_a_page_at_a_time(enter: Enter, redis_server: RedisServer):
    for name in ("a", "b/c 50%41", "d"):
        with Queue(name, url=redis_server.url) as queue:
            queue.send(1)
    client, names, start = enter(), list[str](), ""
    while start is not None:
        page = client.get(f"{MAIN}/queues", params={"limit": 2, "start": start}).json()
        names += [each["name"] for each in page["queues"]]
        start = page["next"]
    assert (names, page["total"]) == (["a", "b/c 50%41", "d"], 3)
    assert client.get(f"{MAIN}/queues", params={"name": "C 5"}).json()["matched"] == 1


def test_name_in_a_path_is_quoted_once_under_any_mount(enter: Enter, redis_server: RedisServer):
    with Queue("b/c 50%41", url=redis_server.url) as queue:
        queue.send(1, id="x/y")
    path = f"{MAIN}/queues/b%2Fc%2050%2541"
    mounted = enter(around=lambda each: Starlette(routes=[Mount("/ops/queues", each)]))
    for client, prefix in ((enter(), ""), (mounted, "/ops/queues")):
        assert client.get(prefix + path).json()["summary"]["name"] == "b/c 50%41"
        assert client.get(f"{prefix}{path}/messages/x%2Fy").json()["message"]["id"] == "x/y"


@pytest.mark.usefixtures("stocked")
def test_message_has_its_payload_headers_and_why(enter: Enter):
    client = enter()
    answer = client.get(f"{EMAILS}/messages/m").json()
    assert answer["why"].startswith("m is not due")
    seen = answer["message"]
    assert (seen["state"], seen["payload_kind"], seen["payload"]) == ("pending", "json", {"to": "ann"})
    assert seen["headers"] == {"tenant": "acme", "raw": {"base64": "/w=="}}
    raw = client.get(f"{EMAILS}/messages/raw").json()["message"]
    assert (raw["payload_kind"], raw["payload_base64"], raw["payload_bytes"]) == ("bytes", "AP8=", 2)
    assert "payload" not in raw
    assert is_problem(client.get(f"{EMAILS}/messages/none"), 404)


def test_json_comes_back_exactly_as_it_was_sent(enter: Enter, queue: Queue):
    queue.send({"n": 1.1, "big": 123456789012345678901234567890}, id="m")
    assert '"payload":{"n":1.1,"big":123456789012345678901234567890}' in enter().get(f"{EMAILS}/messages/m").text


def test_gone_message_is_described_while_the_ledger_knows_it(enter: Enter, stocked: Queue):
    stocked.cancel("m")
    stocked.collect_garbage()
    client = enter()
    answer = client.get(f"{EMAILS}/messages/m").json()
    assert answer["message"] is None
    assert "cancelled" in answer["why"]
    assert [each["event"] for each in client.get(f"{EMAILS}/messages/m/history").json()["events"]] == [
        "cancelled",
        "sent",
    ]


def test_state_is_listed_a_page_at_a_time_in_both_directions(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m+{n}", delay=60 + n) for n in range(5)])
    client, seen, after = enter(), list[str](), ""
    while after is not None:
        page = client.get(f"{EMAILS}/messages", params={"limit": 2, "after": after}).json()
        seen += [each["id"] for each in page["messages"]]
        after = page["after"]
    assert seen == [f"m+{n}" for n in range(5)]
    last = client.get(f"{EMAILS}/messages?before=%2B&limit=2").json()
    assert ([each["id"] for each in last["messages"]], last["rank"], last["total"]) == (["m+3", "m+4"], 3, 5)
    front = client.get(f"{EMAILS}/messages", params={"limit": 2, "before": last["before"]}).json()
    assert [each["id"] for each in front["messages"]] == ["m+1", "m+2"]


def test_large_payload_is_read_alone_but_not_in_a_list(enter: Enter, queue: Queue):
    queue.send("x" * 20_000, id="m", delay=60)
    client = enter()
    (listed,) = client.get(f"{EMAILS}/messages").json()["messages"]
    assert (listed["payload_kind"], "payload" in listed) == ("unread", False)
    assert listed["payload_bytes"] > 20_000
    assert len(client.get(f"{EMAILS}/messages/m").json()["message"]["payload"]) == 20_000


def test_filter_of_a_request_is_the_one_that_its_link_on_a_page_holds():
    at = dt.datetime(2026, 12, 24, 18, 0, 0, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    wanted = Filter(state="dead", header="tenant=acme", bare=True, older="1h", id_prefix="a", since=at, until=at)
    typed = wanted.meant(Redaction())
    assert (typed.since, typed.until, typed.bare) == (at, at, True)
    read = MessageFilter.of(typed.fields(), Redaction())
    assert (read.choice(), read.words(), read.fields()) == (typed.choice(), typed.words(), typed.fields())


def test_search_returns_matches_and_where_to_continue(enter: Enter, stocked: Queue, monkeypatch: Any):
    client = enter()
    found = client.get(f"{EMAILS}/search?state=pending&header=tenant%3Dacme").json()
    assert ([each["id"] for each in found["messages"]], found["next"]) == (["m"], None)
    later = [each["due_at"] for each in client.get(f"{EMAILS}/search?id_prefix=raw").json()["messages"]]
    for until, ids in ((later[0], ["raw"]), ("2001-01-01T00:00:00Z", [])):
        page = client.get(f"{EMAILS}/search", params={"until": until, "id_prefix": "ra"}).json()
        assert [each["id"] for each in page["messages"]] == ids
    assert client.get(f"{EMAILS}/search?since=2999-01-01T00:00:00Z").json()["messages"] == []
    dead = client.get(f"{EMAILS}/search?state=dead&cause=%23: no such user").json()
    assert [each["id"] for each in dead["messages"]] == ["dead"]
    monkeypatch.setattr("delayq.web.api.messages.SEARCH_SECONDS", 0)
    stocked.send_many([Outgoing("needle" if n == 600 else n, id=f"n{n}", delay=1000 + n) for n in range(601)])
    ids, after, turns = list[str](), "", 0
    while after is not None:
        page = client.get(f"{EMAILS}/search", params={"payload": "needle", "after": after}).json()
        ids, after, turns = ids + [each["id"] for each in page["messages"]], page["next"], turns + 1
    assert ids == ["n600"]
    assert turns > 1


@pytest.mark.usefixtures("stocked")
def test_topic_has_its_groups_records_and_dead_letters(enter: Enter):
    client = enter()
    assert [each["name"] for each in client.get(f"{MAIN}/topics").json()["topics"]] == ["orders"]
    answer = client.get(ORDERS).json()
    assert (answer["length"], answer["groups"][0]["lag"], answer["groups"][0]["dead"]) == (3, 1, 1)
    page = client.get(f"{ORDERS}/records?limit=2").json()
    rest = client.get(f"{ORDERS}/records", params={"limit": 2, "after": page["next"]}).json()
    assert [each["payload"]["n"] for each in page["records"] + rest["records"]] == [0, 1, 2]
    assert page["records"][0]["headers"] == {"k": "v"}
    newest = client.get(f"{ORDERS}/records?newest_first=true&limit=1").json()
    assert newest["records"][0]["payload"] == {"n": 2}
    detail = client.get(BILLING).json()
    assert [(each["consumer"], each["deliveries"]) for each in detail["unacked"]] == [("one", 1)]
    dead = client.get(f"{BILLING}/dead-letters").json()
    assert (dead["total"], dead["dead_letters"][0]["reason"]) == (1, "broken")
    for missing in (
        f"{ORDERS}/groups/none",
        f"{ORDERS}/groups/{'x' * 300}",
        f"{ORDERS}/groups/none/dead-letters",
        f"{MAIN}/topics/none",
    ):
        assert is_problem(client.get(missing), 404)


WRONG: dict[str, tuple[str, int, str | None]] = {
    "server": ("/api/v1/servers/none", 404, None),
    "queue": (f"{MAIN}/queues/none", 404, None),
    "path": ("/api/v1/nothing", 404, None),
    "root": ("/api", 404, None),
    "path below the root": ("/api/queues/emails/nothing", 404, None),
    "number": (f"{EMAILS}/messages?limit=0", 400, "limit"),
    "word": (f"{EMAILS}/messages?state=gone", 400, "state"),
    "unknown": (f"{EMAILS}/messages?stat=dead", 400, "stat"),
    "twice": (f"{EMAILS}/messages?state=dead&state=dead", 400, "state"),
    "cursor": (f"{EMAILS}/messages?after=x", 400, "after"),
    "place of a search": (f"{EMAILS}/search?after=x", 400, "after"),
    "header": (f"{EMAILS}/search?header=x", 400, "header"),
    "place in a ledger": (f"{EMAILS}/messages/m/history?after=x", 400, "after"),
    "dead letter": (f"{BILLING}/dead-letters?after=x", 400, "after"),
    "record": (f"{MAIN}/topics/orders/records?after=x", 400, "after"),
    "schedule": (f"{EMAILS}/schedules/none", 404, None),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_request_is_a_problem_that_names_the_field(enter: Enter, stocked: Queue, case: str):
    path, status, field = WRONG[case]
    answer = enter().get(path)
    assert is_problem(answer, status)
    assert answer.json().get("field") == field
    assert stocked.stats().dead == 1


class CountedName(str):
    """A name in a query that counts how often it is compared."""

    looked_at = 0

    def __hash__(self) -> int:
        CountedName.looked_at += 1
        return super().__hash__()


def test_long_query_is_refused_quickly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(CountedName, "looked_at", 0)
    items = [(CountedName(number), "") for number in range(1000)]
    with pytest.raises(InvalidInput, match="'999' is given twice"):
        _query([*items, items[-1]], SearchQuery)
    assert CountedName.looked_at < 5000


def test_every_error_of_the_middleware_is_a_problem(enter: Enter, stocked: Queue):
    client = enter(hosts=["127.0.0.1"])
    assert is_problem(client.get(EMAILS, headers={"host": "evil.example"}), 421)
    for method, path, allowed in (
        ("PUT", EMAILS, "GET, HEAD"),
        ("POST", EMAILS, "GET, HEAD"),
        ("OPTIONS", f"{EMAILS}/messages", "GET, HEAD, POST"),
        ("GET", f"{EMAILS}/pause", "POST"),
        ("POST", "/api/v1/openapi.json", "GET, HEAD"),
    ):
        answer = client.request(method, path)
        assert is_problem(answer, 405)
        assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")
    known = enter(login=lambda _: None).get(EMAILS)
    assert is_problem(known, 403)
    assert stocked.stats().dead == 1


def test_silent_server_is_a_temporary_problem(enter: Enter):
    answer = enter(servers={"main": "redis://127.0.0.1:1"}).get(EMAILS)
    assert is_problem(answer, 503)
    assert answer.headers["retry-after"] == "5"


def test_internal_error_is_a_problem_without_details(enter: Enter, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("what nobody should read")

    monkeypatch.setattr("delayq.web.poller.ServerPoller.now", broken)
    answer = enter().get(f"{MAIN}/queues")
    assert is_problem(answer, 500)
    assert "nobody should read" not in answer.text


@pytest.mark.parametrize("operation", READING, ids=lambda each: each.name)
def test_unknown_user_reads_nothing(enter: Enter, stocked: Queue, operation: Operation):
    for options in ({"login": Token(TOKEN)}, {"login": lambda _: None}):
        client = enter(**options)
        for headers in ({}, {"authorization": "Bearer a guess"}, {"authorization": "Basic YTpi"}):
            answer = client.get(path_of(operation), headers=headers)
            assert answer.status_code in {401, 403}
            assert is_problem(answer, answer.status_code)
    assert stocked.stats().dead == 1


@pytest.mark.parametrize("operation", READING, ids=lambda each: each.name)
def test_viewer_reads_everything(enter: Enter, stocked: Queue, operation: Operation):
    client = enter(login=Token(TOKEN, "viewer"))
    assert client.get(path_of(operation), headers=BEARER).status_code == (
        404 if operation.name in {"get_job", "get_task"} else 200
    )
    assert stocked.stats().dead == 1


def basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.mark.usefixtures("cheap_passwords")
def test_program_logs_in_by_name_and_password_which_is_hashed_once(
    enter: Enter, stocked: Queue, monkeypatch: pytest.MonkeyPatch
):
    users = Users([user_line("ann", "operator", "correct horse")])
    client, checks = enter(login=users), []
    check = users.check

    async def counted(*given: Any) -> User | None:
        checks.append(given)
        return await check(*given)

    monkeypatch.setattr(users, "check", counted)
    for _ in range(3):
        assert client.get(EMAILS, headers=basic("ann", "correct horse")).status_code == 200
    assert len(checks) == 1
    wrong = client.get(EMAILS, headers=basic("ann", "wrong horse"))
    assert is_problem(wrong, 401)
    assert wrong.headers["www-authenticate"] == 'Basic realm="delayq"'
    assert is_problem(client.get(EMAILS, headers={"authorization": "Basic ?"}), 401)
    assert client.get("/", headers=basic("ann", "correct horse")).status_code == 303  # pages have a form for that
    assert stocked.stats().dead == 1


def test_guesses_of_programs_are_throttled_and_audited(enter: Enter, stocked: Queue):
    lines: list[Any] = []
    client = enter(login=Token(TOKEN), audit=lines.append)
    for _ in range(5):
        answer = client.get(EMAILS, headers={"authorization": "Bearer a guess"})
        assert is_problem(answer, 401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="delayq"'
    late = client.get(EMAILS, headers=BEARER)
    assert is_problem(late, 429)
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert [(each["who"], each["action"]) for each in lines] == [("token", "login")] * 6
    assert lines[-1]["outcome"].startswith("refused: Too many attempts")
    assert stocked.stats().dead == 1


def test_logged_in_browser_reads_the_api(enter: Enter, stocked: Queue):
    client = enter(login=Token(TOKEN))
    log_in(client, TOKEN)
    assert client.get(EMAILS, headers=OWN).status_code == 200
    wrong = client.get(EMAILS, headers={"authorization": "Bearer a guess"})
    assert is_problem(wrong, 401)  # the credentials of a request come first
    assert stocked.stats().dead == 1


def test_server_cannot_be_named_api():
    with pytest.raises(ValueError, match="server name 'api' is reserved for a page"):
        app({"api": "redis://127.0.0.1:1"})


def test_no_operation_reveals_hidden_values(enter: Enter, queue: Queue, redis_server: RedisServer):
    queue.configure(events=True)
    secret = {"password": "swordfish", "items": [{"Password": "swordfish"}]}
    queue.send(secret, id="m", delay=60, headers={"password": "swordfish"})
    queue.send(secret, id="dead")
    (message,) = queue.receive(1)
    message.reject("password=swordfish", error="password: swordfish")
    queue.schedules.add("nightly", "@daily", secret, headers={"password": "swordfish"})
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", start="0")
        topic.publish(secret, headers={"password": "swordfish"})
        topic._executor.client.xadd("delayq:{orders}:topic", {"password": "swordfish"})
        (*_, last) = group.poll("one")
        group.bury(last, "one", "password=swordfish", error="password=swordfish")
    client = enter(redact=["password"])
    paths = [*map(path_of, READING), f"{EMAILS}/messages?state=dead", f"{EMAILS}/messages/dead"]
    paths += [f"{EMAILS}/messages/dead/history", f"{EMAILS}/search?state=dead&error=password"]
    found = {path: client.get(path).text for path in paths}
    assert [path for path, text in found.items() if "swordfish" in text or "c3dvcmRmaXNo" in text] == []
    assert sum("[redacted]" in text for text in found.values()) > 8
    for guess in ("payload=swordfish", "header=password%3Dswordfish"):
        assert is_problem(client.get(f"{EMAILS}/search?{guess}"), 400)
    edit = client.post(f"{EMAILS}/messages/dead/edit", json={"payload": 1})
    client.cookies.clear()
    assert is_problem(edit, 400)
    assert edit.json()["field"] == "payload"
