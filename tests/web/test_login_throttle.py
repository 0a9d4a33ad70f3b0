"""The limit of guesses per minute and address."""

from __future__ import annotations

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from delayq.http_connections import place_of
from delayq.web import Dashboard, Token, login_throttle
from delayq.web.login_throttle import MOST, SECONDS, LoginThrottle
from tests.web.conftest import Enter, log_in

TOKEN = "a token that is long enough"


class Elsewhere:
    """Makes requests come from different addresses in turn."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self.address = "192.0.2.0"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application({**scope, "client": (self.address, 4711)}, receive, send)


def test_token_works_while_others_guess_from_a_hundred_addresses(enter: Enter):
    made = list[Elsewhere]()

    def around(dashboard: Dashboard) -> ASGIApp:
        made.append(Elsewhere(dashboard))
        return made[0]

    client = enter(login=Token(TOKEN), around=around)
    for stranger in range(100):
        made[0].address = f"198.51.100.{stranger}"
        assert client.get("/", headers={"authorization": "Bearer a guess"}).status_code == 303
    made[0].address = "203.0.113.1"
    assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert log_in(client, TOKEN).status_code == 303
    assert client.get("/").status_code == 200


def test_throttled_address_waits_until_its_first_guess_is_a_minute_old():
    now = [0.0]
    guesses = LoginThrottle(clock=lambda: now[0])
    for now[0] in range(MOST):
        assert guesses.begin("192.0.2.1") == 0
    assert guesses.begin("192.0.2.1") == SECONDS - MOST + 1
    now[0] = SECONDS
    assert guesses.begin("192.0.2.1") == 0
    assert guesses.begin("192.0.2.1") == 1


def test_remembered_addresses_are_bounded_and_active_ones_are_kept(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(login_throttle, "MOST_ADDRESSES", 10)
    guesses = LoginThrottle(clock=lambda: 0.0)
    for stranger in range(100):
        guesses.begin(f"198.51.100.{stranger}")
        guesses.begin("192.0.2.1")
    assert guesses.begin("192.0.2.1") == SECONDS
    assert [guesses.begin("198.51.100.99") for _ in range(MOST)] == [0] * (MOST - 1) + [SECONDS]
    assert [guesses.begin("198.51.100.0") for _ in range(MOST)] == [0] * MOST


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:50123", "192.0.2.1"),  # as some proxies write it
        ("[2001:db8:1:2:3:4:5:6]:50123", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3:4:5:6]", "2001:db8:1:2::/64"),
        ("unknown:50123", "unknown"),
        ("::1", "::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_ipv6_network_counts_as_one_address(address: str, place: str):
    assert place_of(address) == place
