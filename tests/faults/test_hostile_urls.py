"""Any URL gives a client or an InvalidURL, and using the client raises only our own errors."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import Queue
from delayq.errors import DelayqError, InvalidURL
from delayq.model.server_url import SETTINGS, check, redact
from delayq.transport import clients, open_client
from delayq.transport.open_client import connect
from tests.harness.hostile import GROWTH_BYTES, TEXTS, examples, growth, mutations, refusal, texts
from tests.harness.servers import RedisServer

SCHEMES = ["redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "embedded", "http", ""]
VALID = [
    b"redis://user:pa%20ss@localhost:6379/0?socket_timeout=5&client_name=billing",
    b"rediss://[::1]:6380/1?ssl_cert_reqs=none",
    b"redis+sentinel://u:p@one:1,two:2/service/0?sentinel_password=x",
    b"redis+cluster://:secret@one:1,two",
    b"unix://:secret@/run/redis.sock?db=3",
    b"embedded:///var/store",
]
DIGITS = "9" * 5000

CORPUS = {
    "port-of-thousands-of-digits": f"redis://host:{DIGITS}",
    "database-of-thousands-of-digits": f"redis://host/{DIGITS}",
    "service-and-database-of-thousands-of-digits": f"redis+sentinel://host/service/{DIGITS}",
    "setting-of-thousands-of-digits": f"redis://host?db={DIGITS}",
    "port-of-other-digits": "redis://host:٣",
    "database-of-other-digits": "redis://host/٣",
    "database-above-all": "redis://host/²",
    "label-too-long": f"redis://{'a' * 64}.example.org",
    "label-too-long-for-sentinel": f"redis+sentinel://{'a' * 64}/service",
    "label-too-long-for-a-cluster": f"redis+cluster://{'a' * 64}",
    "label-empty": "redis://a..b",
    "dots-alone": "redis://.",
    "nul-in-a-host": "redis://host%00",
    "newline-in-a-host": "redis://%0ahost",
    "escape-in-a-host": "redis://127.0.0.1%1b[2J:1",
    "nul-in-a-file": "unix:///run/%00",
    "nul-in-a-folder": "embedded:///run/%00",
    "nul-in-a-certificate": "rediss://host?ssl_ca_certs=%00",
    "surrogate-in-a-host": "redis://\udcff",
    "surrogate-in-a-password": "redis://:\udcff@host",
    "surrogate-in-a-setting": "redis://host?password=\ud800",
    "surrogate-in-a-file": "unix:///run/\ud800",
    "surrogate-in-a-service": "redis+sentinel://host/\udcff",
    "time-that-is-no-number": "redis://host?socket_timeout=nan",
    "time-without-end": "redis://host?socket_timeout=inf",
}
HUGE = {
    "settings": "redis://host?" + "a=b&" * 100_000,
    "settings-and-a-password": "redis://host?password=x&" + "a=b&" * 100_000,
    "the-same-setting": "redis://host?" + "db=1&" * 100_000,
    "hosts": "redis://" + "host," * 100_000,
    "a-host": "redis://" + "a" * 1_000_000,
    "a-bracket": "redis://[" + ":" * 1_000_000,
    "a-zone": "redis://[::1%25" + "a" * 1_000_000,
    "percents": "redis://host/" + "%" * 1_000_000,
    "ats": "redis://" + "@" * 1_000_000,
    "colons": "redis://" + ":" * 1_000_000,
    "slashes": "unix://" + "/" * 1_000_000,
    "questions": "redis://host" + "?" * 1_000_000,
    "spaces": "redis://" + " " * 1_000_000,
    "a-host-and-a-fragment": "redis://" + "a" * 1_000_000 + "#",
    "a-path-and-a-fragment": "redis://host/" + "a" * 1_000_000 + "#",
    "a-scheme": "a" * 1_000_000,
}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the two kinds of URL that connect at once lead nowhere."""
    monkeypatch.setattr(open_client, "open_store", lambda _: "store")
    monkeypatch.setattr(clients, "cluster", lambda *_: "cluster")


def connect_or_refuse(url: Any) -> None:
    assert len(refusal(lambda: connect(url), InvalidURL)) < 4 * len(url) + 1000
    assert len(redact(url)) <= 4 * len(url) + 10


@pytest.mark.parametrize("name", CORPUS)
def test_invalid_url_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidURL):
        connect(CORPUS[name])


@pytest.mark.full
@pytest.mark.parametrize("name", HUGE)
def test_url_of_a_megabyte_is_parsed_at_once(name: str) -> None:
    connect_or_refuse(HUGE[name])


@pytest.mark.parametrize("wrong", [None, b"redis://host", 5, ["redis://host"]])
def test_url_that_is_not_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidURL):
        check(wrong)


def test_circular_links_are_not_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InvalidURL, match="ssl_ca_certs"):
        connect(f"rediss://host?ssl_ca_certs={tmp_path}/a")


settings = st.lists(st.tuples(st.sampled_from([*SETTINGS, "nothing", ""]), texts), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


@examples
@given(st.sampled_from(SCHEMES), texts, texts, texts, texts, settings)
def test_url_of_hostile_parts_is_valid_or_invalid_url(
    scheme: str, login: str, host: str, port: str, path: str, query: str
) -> None:
    connect_or_refuse(f"{scheme}://{login}@{host}:{port}/{path}?{query}")
    connect_or_refuse(f"{scheme}://{host}/{path}?{query}")


@pytest.mark.full
@examples
@given(mutations(st.sampled_from(VALID)))
def test_damaged_url_is_valid_or_invalid_url(data: bytes) -> None:
    connect_or_refuse(data.decode(errors="surrogateescape"))


LOGINS = [text for text in TEXTS if "/" not in text]


def test_hostile_login_is_refused_by_the_server_and_by_name(redis_server: RedisServer) -> None:
    served = []
    for text in LOGINS:
        for login in (f"{text}:x", f"user:{text}"):
            with contextlib.suppress(DelayqError):
                Queue("emails", url=f"unix://{login}@{redis_server.socket}").stats()
                served.append(login)
    assert served == []


@pytest.mark.full
def test_url_reader_does_not_leak_memory() -> None:
    dice = random.Random(4)

    def work(number: int) -> None:
        noise = bytes(dice.randrange(256) for _ in range(4)).decode(errors="surrogateescape")
        url = VALID[number % len(VALID)].decode()
        place = dice.randrange(len(url))
        connect_or_refuse(url[:place] + noise + url[place:])
        connect_or_refuse(url)

    assert growth(work, 6000) < GROWTH_BYTES
