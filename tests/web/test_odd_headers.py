"""Odd headers of strangers: none makes the dashboard fail, and failures cannot fill the log."""

from __future__ import annotations

import time
from typing import Any

import pytest
import structlog

from delayq.web import Token, Users, user_line
from delayq.web.login_throttle import MOST, MOST_LINES
from tests.web.conftest import Enter

HEADERS = [
    "accept",
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "idempotency-key",
    "if-modified-since",
    "if-none-match",
    "last-event-id",
    "origin",
    "range",
    "referer",
    "sec-fetch-site",
    "transfer-encoding",
    "x-csrf-token",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-http-method-override",
    "x-original-url",
    "x-requested-with",
]
VALUES: list[bytes] = [
    *(b"", b" ", b"[", b"]", b"http://[", b"http://[::1", b"http://a]b", b"//[", b"null", b"\xff", b"\xc3\xa9", b"%"),
    *(b"Basic", b"Basic !", b"Basic /w==", b"Basic Og==", b"Bearer \xff", b"bearer", b"Bearer " + b"x" * 5000),
    *(b"bytes=", b"bytes=0-", b"bytes=9-1", b"bytes=-0", b"bytes=" + b"0-1," * 500, b"W/", b'"', b"-1", b"1e9", b"0x1"),
    *(b"Fri, 99 Nov 2026 25:61:61 GMT", b"delayq-80=x", b"delayq=e30.x; delayq-80=\xff", b"=", b";", b"a=b; " * 800),
    *(
        b"text/plain; charset=\xff",
        b"multipart/form-data",
        b"application/json; x",
        b"\xe2\x80\x8b",
        b"99999999999999999999",
    ),
]
PATHS = ["/login", "/static/style.css", "/main/queues", "/api/v1/servers", "/api/v1/", "/metrics", "/nowhere"]


@pytest.mark.usefixtures("cheap_passwords")
@pytest.mark.by_lot(8)
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("users", PATHS[0]),
        *(
            pytest.param(kind, path, marks=pytest.mark.full)
            for path in PATHS
            for kind in ("token", "users", "none")
            if (kind, path) != ("users", PATHS[0])
        ),
    ],
)
def test_no_header_makes_the_dashboard_fail(enter: Enter, kind: str, path: str):
    logins: dict[str, Any] = {
        "token": Token("a token that is long enough"),
        "users": Users([user_line("ann", "operator", "ann's password")]),
        "none": None,
    }
    lines: list[Any] = []
    began = time.monotonic()
    client, asked = enter(login=logins[kind], audit=lines.append, hosts=[]), 0
    with structlog.testing.capture_logs() as logged:
        for name in HEADERS:
            for value in VALUES:
                for method in ("GET", "POST"):
                    client.cookies.clear()
                    answer = client.request(method, path, headers=[(name.encode(), value)])
                    assert answer.status_code < 500, (method, path, name, value)
                    asked += 1
    assert asked == len(HEADERS) * len(VALUES) * 2
    assert [each["event"] for each in logged if each["event"] != "redis keeps nothing on disk"] == []
    minutes = 1 + int((time.monotonic() - began) / 60)
    assert kind == "none" or len(lines) <= minutes * (MOST_LINES + MOST)


def test_error_that_a_stranger_causes_cannot_fill_the_log(enter: Enter, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr("delayq.web.forgery.ForgeryCheck._is_same_site", broken)
    client = enter(login=Token("a token that is long enough"))
    with structlog.testing.capture_logs() as logged:
        assert {client.post("/login").status_code for _ in range(50)} == {500}
    assert {each["event"] for each in logged} == {"dashboard failed", "audit"}
    assert len(logged) == MOST_LINES
