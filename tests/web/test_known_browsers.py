"""Known browsers: guesses of strangers do not keep out a user who has logged in with the browser before."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from delayq.web import Token, Users, app, passwords, user_line
from delayq.web.auth import KNOWN_SECONDS
from tests.harness.servers import RedisServer
from tests.harness.web.following import holds
from tests.web.conftest import OWN, Client, Enter, log_in, token_on

pytestmark = pytest.mark.usefixtures("cheap_passwords")

with pytest.MonkeyPatch.context() as cheap:
    cheap.setattr(passwords, "_N", 2)
    ANN, BOB = user_line("ann", "operator", "correct horse"), user_line("bob", "viewer", "secret word")
DEVICE = "delayq-device"


class From:
    """Makes a request come from the address in its header."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = dict(scope["headers"]).get(b"x-from", b"127.0.0.1").decode() if scope["type"] == "http" else ""
        await self._application({**scope, "client": (named, 4711)}, receive, send)


def test_known_browser_logs_in_while_thousands_guess(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    looked_at, goes_on, matches = list[str](), threading.Event(), passwords.matches

    def slowly(secret: str, kept: str) -> bool:
        if secret.startswith("guess"):
            looked_at.append(secret)
            goes_on.wait()
        return matches(secret, kept)

    monkeypatch.setattr(passwords, "matches", slowly)

    async def guess() -> None:
        dashboard = app(redis_server.url, login=Users([ANN]))
        transport = httpx.ASGITransport(From(dashboard))
        try:
            async with (
                httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as anns,
                httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as new,
            ):
                assert (await enter(anns, "correct horse")).status_code == 303
                await new.get("/login")  # real attackers have a session each; here they share one
                guesses = [asyncio.create_task(enter(new, f"guess {n}", f"2001:db8:{n:x}::1")) for n in range(100)]
                await holds(lambda: len(looked_at) == passwords.AT_ONCE and sum(each.done() for each in guesses) == 80)
                assert (await enter(new, "correct horse", "192.0.2.1")).status_code == 503
                anns.cookies.delete("delayq")
                assert (await enter(anns, "correct horse", "192.0.2.2")).status_code == 303
                goes_on.set()
                found = [each.status_code for each in await asyncio.gather(*guesses)]
                assert (found.count(503), found.count(403)) == (80, 20)
        finally:
            goes_on.set()  # a waiting thread delays the end of the loop
        await dashboard.close()

    asyncio.run(guess())


async def enter(client: httpx.AsyncClient, secret: str, address: str = "127.0.0.1") -> httpx.Response:
    """Fill in and send the login form from an address."""
    token = token_on((await client.get("/login")).text)
    fields = {"csrf": token, "name": "ann", "secret": secret}
    return await client.post("/login", data=fields, headers=OWN | {"x-from": address})


def keeping(client: Client, device: str) -> Client:
    """Make this the only cookie of a browser."""
    client.cookies.clear()
    client.cookies.set(DEVICE, device, domain="127.0.0.1", path="/login")
    return client


def test_known_browser_has_its_own_limit_of_guesses(enter: Enter):
    client = enter(login=Users([ANN]))
    log_in(client, "correct horse", "ann")
    device = client.cookies[DEVICE]
    client.cookies.clear()
    assert [log_in(client, "a guess", "ann").status_code for _ in range(6)] == [403] * 5 + [429]
    assert log_in(client, "correct horse", "ann").status_code == 429
    assert log_in(keeping(client, device), "correct horse", "ann").status_code == 303
    keeping(client, device)
    assert [log_in(client, "a guess", "ann").status_code for _ in range(6)] == [403] * 5 + [429]


def test_device_cookie_is_for_one_user_and_one_password():
    users = Users([ANN, BOB])
    device = users.device("ann")
    assert users.knows("ann", device)
    assert Users([ANN]).knows("ann", device)  # after a restart, or in another process
    assert not users.knows("bob", device)
    assert not users.knows("eve", device)
    assert not Users([user_line("ann", "operator", "correct horse")]).knows("ann", device)  # set again
    assert users.device("ann") != device
    forged: list[Any] = ["", ".", device[:-1], device + "0", "x" + device, device.upper(), "é.é", f"{device}.{device}"]
    assert [each for each in forged if users.knows("ann", each)] == []


def test_device_cookie_expires_after_half_a_year():
    now = [1_790_000_000.0]
    users = Users([ANN], clock=lambda: now[0])
    device = users.device("ann")
    now[0] += KNOWN_SECONDS - 1
    assert users.knows("ann", device)
    now[0] += 1
    assert not users.knows("ann", device)
    until, _, rest = device.partition("-")
    assert not users.knows("ann", f"{int(until) + 60}-{rest}")


def test_device_cookie_is_for_the_login_only_and_grants_no_access(enter: Enter):
    client = enter(login=Users([ANN]))
    (kept,) = [each for each in log_in(client, "correct horse", "ann").headers.get_list("set-cookie") if DEVICE in each]
    assert f"; HttpOnly; Max-Age={KNOWN_SECONDS}; Path=/login; SameSite=lax" in kept
    assert keeping(client, client.cookies[DEVICE]).get("/").status_code == 303
    own = {"origin": "https://127.0.0.1"}
    over_tls = enter(login=Users([ANN]), base_url="https://127.0.0.1")
    token = token_on(over_tls.get("/login").text)
    fields = {"csrf": token, "name": "ann", "secret": "correct horse"}
    cookies = over_tls.post("/login", data=fields, headers=OWN | own).headers.get_list("set-cookie")
    assert [each.endswith("; Secure") for each in cookies] == [True, True]


def test_wrong_password_or_token_sets_no_device_cookie(enter: Enter):
    client = enter(login=Users([ANN]))
    log_in(client, "a guess", "ann")
    by_token = enter(login=Token("a token that is long enough"))
    log_in(by_token, "a token that is long enough")
    assert [name for each in (client, by_token) for name in each.cookies if name.endswith("-device")] == []
