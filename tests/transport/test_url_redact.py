"""No secret in a URL is ever shown."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.errors import InvalidURL
from delayq.model.server_url import redact
from delayq.transport.open_client import connect

MARK = "Zq9x"  # part of every password here, and of nothing else


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://user:secret@host/0", "redis://user:***@host/0"),
        ("redis://:secret@[::1]:1", "redis://:***@[::1]:1"),
        ("redis://token@host", "redis://***@host"),
        ("redis+sentinel://u:p@a:1,b/service/0", "redis+sentinel://u:***@a:1,b/service/0"),
        ("rediss://host?ssl_password=x&socket_timeout=1", "rediss://host?ssl_password=***&socket_timeout=1"),
        ("redis://host?pasword=x", "redis://host?pasword=***"),
        ("unix:///run/a@b.sock", "unix:///run/a@b.sock"),
        ("embedded:///home/me@work/store", "embedded:///home/me@work/store"),
        ("redis://user:secret", "redis://***"),
        ("redis://user:p/ss@host", "***"),
        ("redis://user:p?ss@host", "***"),
        ("redis://user:p#ss@host", "***"),
        ("localhost:6379", "***"),
        ("", "***"),
        ("redis://us%40er:secret@host", "redis://***:***@host"),
        ("redis://user:@host", "redis://***@host"),
        ("redis+cluster://a,[fe80::1%25eth0]:1", "redis+cluster://a,[fe80::1%25eth0]:1"),
        ("redis+sentinel://a/my%20queue/5", "redis+sentinel://a/my%20queue/5"),
        ("embedded:///home/m%C3%BCller/my%20store", "embedded:///home/m%C3%BCller/my%20store"),
        ("unix://u:p@/run/redis.sock?db=3", "unix://u:***@/run/redis.sock?db=3"),
        (
            "rediss://host?ssl_ca_certs=/etc/ca.pem&client_name=a-b",
            "rediss://host?ssl_ca_certs=/etc/ca.pem&client_name=a-b",
        ),
        ("redis://host?ssl=true", "redis://host?ssl=***"),
        ("redis://host?socket_timeout=5;x&db=1", "redis://host?socket_timeout=***&db=1"),
        ("redis://host?other=x", "redis://***"),
        ("redis://host?x", "redis://***"),
        ("redis://host/zero", "redis://***"),
        ("redis://one,two", "redis://***"),
        ("redis://host;x", "redis://***"),
        ("redis://a%20b", "redis://***"),
        ("unix:///me@run/redis.sock", "unix://***"),
        ("unix:///run/redis.sock;x", "unix://***"),
        ("http://localhost", "***"),
        ("redis://host" + " " * 5000, "redis://***"),
    ],
)
def test_redacted_url_keeps_what_is_not_secret(url: str, shown: str):
    assert redact(url) == shown


SPOTS = [
    "redis://:{}@localhost:6379/0",
    "redis://user:{}@localhost:70000",
    "redis+sentinel://user:{}@one,two:x/service",
    "redis+cluster://:{}@one/3",
    "unix://:{}@/run/redis.sock?db=x",
    "unix://user:{}@run/redis.sock",
    "redis://localhost/x?password={}",
    "redis://localhost?password={}&client_name=a%20b",
    "redis+sentinel://localhost/service?sentinel_password={}&db=x",
    "rediss://localhost?ssl_password={}&no_such=setting",
    "http://user:{}@localhost",
    "user:{}@localhost:6379",
    "redis:/user:{}@localhost",
    "embedded://user:{}@/store",
]


def shown_of(url: str) -> str:
    """Everything that a user or a log sees of a URL."""
    try:
        return redact(url) + repr(connect(url))
    except InvalidURL as error:
        return redact(url) + "".join(traceback.format_exception(error))


@given(
    before=st.text("ab1/?#@:%&=[] ,\n", max_size=3),
    after=st.text("ab1/?#@:%&=[] ,\n", max_size=3),
    spot=st.sampled_from(SPOTS),
    encoded=st.booleans(),
)
@example(before="a/", after="b", spot=SPOTS[0], encoded=False)
@example(before="a&", after="", spot=SPOTS[6], encoded=False)
def test_no_password_is_ever_shown(before: str, after: str, spot: str, encoded: bool):
    password = f"{before}{MARK}{after}"
    assert MARK not in shown_of(spot.format(quote(password, safe="") if encoded else password))


@pytest.mark.parametrize("url", ["redis://user:{}", "redis://:{}/0", "redis://:{}?db=0", "unix://user:{}"])
def test_password_without_an_at_sign_is_not_shown(url: str):
    assert MARK not in shown_of(url.format(MARK))
