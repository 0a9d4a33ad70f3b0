"""Logins, sessions and roles."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delayq import Queue
from delayq.errors import InvalidInput
from delayq.web import Token, User, Users, passwords, user_line
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Enter, act, log_in, token_on

pytestmark = pytest.mark.usefixtures("cheap_passwords")

TOKEN = "a token that is long enough"


@pytest.fixture
def users() -> Users:
    return Users(["# who may", user_line("ann", "operator", "ann's password"), user_line("bob", "viewer", "bob's own")])


def test_request_without_a_login_returns_to_its_page_after_login(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter(login=Token(TOKEN))
    asked = client.get("/main/queues/emails?span=day")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fmain%2Fqueues%2Femails%3Fspan%3Dday")
    form = client.get(asked.headers["location"]).text
    action = form.partition('action="')[2].partition('"')[0].replace("&amp;", "&")
    entered = client.post(action, data={"csrf": token_on(form), "secret": TOKEN}, headers=OWN)
    assert (entered.status_code, entered.headers["location"]) == (303, "/main/queues/emails?span=day")
    assert client.get("/main/queues/emails?span=day").status_code == 200


@pytest.mark.parametrize("wanted", ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example"])
def test_login_never_redirects_to_another_site(enter: Enter, wanted: str):
    client = enter(login=Token(TOKEN))
    token = token_on(client.get("/login").text)
    entered = client.post("/login", params={"next": wanted}, data={"csrf": token, "secret": TOKEN}, headers=OWN)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")


def test_wrong_token_is_refused_and_reveals_nothing(enter: Enter):
    client = enter(login=Token(TOKEN))
    refused = log_in(client, TOKEN[:-1])
    assert refused.status_code == 403
    assert TOKEN not in refused.text
    assert client.get("/").status_code == 303


def test_only_the_login_and_static_files_need_no_login(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter(login=Token(TOKEN))
    paths = ["/", "/main/live", "/main/queues/emails", "/main/queues/emails/charts", "/nowhere"]
    assert {client.get(path).status_code for path in paths} == {303}
    assert {client.get(path, headers={"x-requested-with": "fetch"}).status_code for path in paths} == {401}
    assert client.get("/static/style.css").status_code == 200
    assert client.get("/static/../application.py").status_code != 200


@pytest.mark.parametrize("name", ["login-east", "loginx", "static-1", "logouts"])
def test_server_name_bypasses_no_login(enter: Enter, queue: Queue, redis_server: RedisServer, name: str):
    queue.send("hello")
    client = enter(login=Token(TOKEN), servers={name: redis_server.url})
    assert client.get(f"/{name}/queues/emails").status_code == 303
    token = token_on(client.get("/login").text)
    paused = client.post(f"/{name}/queues/emails/pause", data={"csrf": token}, headers=OWN)
    assert (paused.status_code, queue.stats().paused_since) == (401, None)


def test_sixth_guess_in_a_minute_waits_even_if_right(enter: Enter):
    client = enter(login=Token(TOKEN))
    assert [log_in(client, f"guess {n}").status_code for n in range(5)] == [403] * 5
    refused = log_in(client, TOKEN)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60


def test_number_of_waiting_passwords_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(passwords, "MOST_WAITING", 3)
    users = Users([user_line("ann", "viewer", "correct horse")])

    async def ask() -> None:
        for _ in range(2):
            asked = [users.check("ann", "correct horse") for _ in range(5)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(each) for each in found] == [User] * 3 + [passwords.TooManyLogins] * 2

    asyncio.run(ask())


def test_unchecked_login_is_reported_and_does_not_count_as_a_guess(enter: Enter, monkeypatch: pytest.MonkeyPatch):
    lines: list[Any] = []
    client = enter(login=Users([user_line("ann", "viewer", "correct horse")]), audit=lines.append)
    with monkeypatch.context() as patch:
        patch.setattr(passwords, "MOST_WAITING", 0)
        found = [log_in(client, "correct horse", "ann") for _ in range(6)]
    assert [each.status_code for each in found] == [503] * 6
    assert "Too many logins at once: try again in a few seconds." in found[0].text
    assert lines[-1]["outcome"] == "refused: too many logins at once"
    assert log_in(client, "correct horse", "ann").status_code == 303


def test_right_guess_does_not_reset_wrong_ones(enter: Enter):
    client = enter(
        login=Users([user_line("ann", "viewer", "correct horse"), user_line("bob", "operator", "secret word")])
    )
    calls = []
    for number in range(6):
        calls.append(log_in(client, f"a guess {number}", "bob").status_code)
        if number < 4:
            assert log_in(client, "correct horse", "ann").status_code == 303
        client.cookies.clear()
    assert calls == [403, 403, 403, 403, 403, 429]


def test_cookie_is_http_only_and_secure_over_https(enter: Enter):
    plain = log_in(enter(login=Token(TOKEN)), TOKEN).headers["set-cookie"]
    assert plain.endswith("; Path=/; HttpOnly; SameSite=Lax")
    own = {"origin": "https://127.0.0.1"}
    client = enter(login=Token(TOKEN), base_url="https://127.0.0.1")
    token = token_on(client.get("/login").text)
    over_tls = client.post("/login", data={"csrf": token, "secret": TOKEN}, headers=OWN | own).headers["set-cookie"]
    assert over_tls.endswith("; HttpOnly; SameSite=Lax; Secure")


def test_login_starts_a_new_session(enter: Enter):
    client = enter(login=Token(TOKEN))
    before = token_on(client.get("/login").text)
    log_in(client, TOKEN)
    assert token_on(client.get("/").text) not in {"", before}


def test_logout_ends_the_session_for_copies_of_its_cookie(enter: Enter):
    client = enter(login=Token(TOKEN))
    log_in(client, TOKEN)
    ((name, copied),) = client.cookies.items()
    assert client.post("/logout", data={"csrf": token_on(client.get("/").text)}, headers=OWN).status_code == 303
    assert client.get("/").status_code == 303
    assert client.get("/", headers={"cookie": f"{name}={copied}"}).status_code == 303


def test_tampered_cookie_is_refused(enter: Enter):
    client = enter(login=Token(TOKEN))
    log_in(client, TOKEN)
    ((name, held),) = client.cookies.items()
    client.cookies.clear()
    assert client.get("/", headers={"cookie": f"{name}={held}"}).status_code == 200
    content, _, signature = held.rpartition(".")
    assert client.get("/", headers={"cookie": f"{name}={content}.{signature.swapcase()}"}).status_code == 303
    assert client.get("/", headers={"cookie": f"{name}=nonsense"}).status_code == 303


def test_operator_pauses_and_viewer_is_refused_without_a_button(enter: Enter, queue: Queue, users: Users):
    queue.send("hello")
    lines: list[object] = []
    client = enter(login=users, audit=lines.append)
    assert log_in(client, "bob's own", "bob").status_code == 303
    assert "/pause" not in client.get("/main/queues/emails").text
    assert act(client, "/main/queues/emails/pause").status_code == 403
    assert queue.stats().paused_since is None
    client.cookies.clear()
    assert log_in(client, "ann's password", "ann").status_code == 303
    assert "/pause" in client.get("/main/queues/emails").text
    assert act(client, "/main/queues/emails/pause").status_code == 303
    assert queue.stats().paused_since is not None
    assert lines[-1] == {"who": "ann", "action": "pause", "server": "main", "queue": "emails", "outcome": "done"}


def test_passwords_of_others_and_unknown_names_are_refused(enter: Enter, users: Users):
    client = enter(login=users)
    assert log_in(client, "bob's own", "ann").status_code == 403
    assert log_in(client, "bob's own", "eve").status_code == 403


def test_read_only_dashboard_has_no_button_and_refuses_operators(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter(read_only=True)
    shown = client.get("/main/queues/emails").text
    assert "/pause" not in shown
    assert "read-only" in shown
    assert act(client, "/main/queues/emails/pause").status_code == 403
    assert queue.stats().paused_since is None


def test_application_around_it_can_provide_the_user(enter: Enter, queue: Queue):
    queue.send("hello")
    known = {"ann": User("ann"), "bob": User("bob", "viewer")}
    client = enter(login=lambda request: known.get(request.headers.get("x-user", "")))
    assert client.get("/").status_code == 403
    assert "/pause" in client.get("/main/queues/emails", headers={"x-user": "ann"}).text
    assert "/pause" not in client.get("/main/queues/emails", headers={"x-user": "bob"}).text


def test_program_with_the_token_reads_pages_but_changes_nothing(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter(login=Token(TOKEN))
    known = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/main/queues/emails", headers=known).status_code == 200
    client.cookies.clear()
    token = token_on(client.get("/login").text)
    fields = {"csrf": token}
    assert client.post("/main/queues/emails/pause", data=fields, headers=OWN | known).status_code == 401
    assert queue.stats().paused_since is None
    for _ in range(5):
        assert client.get("/", headers={"authorization": "Bearer a guess"}).status_code == 303
    assert client.get("/", headers=known).status_code == 303  # as in a browser, the sixth guess has to wait


def test_short_token_is_refused_with_a_remedy():
    with pytest.raises(InvalidInput, match=r"has 5 characters, but needs 16: use the output of python3 -c"):
        Token("short")


HASH = "scrypt$2$8$1$c2FsdA==$" + "A" * 43 + "="


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("ann:operator", "does not start with scrypt"),
        (f"ann:boss:{HASH}", "unknown role 'boss'; expected one of operator, viewer"),
        (f":viewer:{HASH}", "user name '' is empty"),
    ],
    ids=["no hash", "no such role", "no name"],
)
def test_invalid_line_of_a_users_file_is_named(line: str, wrong: str):
    with pytest.raises(InvalidInput, match=rf"line 2 of the users file is not name:role:hash: .*{wrong}"):
        Users(["# a comment", line])


def test_users_file_without_users_is_refused():
    with pytest.raises(InvalidInput, match="has no users"):
        Users([])
