"""URLs: what they mean, and what is refused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import SentinelConnectionPool

from delayq import Queue, aio
from delayq.errors import InvalidURL, ServerUnreachable
from delayq.model.server_url import Makers, check, is_same_server, make, redact
from delayq.transport import clients, open_client
from delayq.transport.open_client import connect


@pytest.fixture
def patient_clients() -> None:
    """Undo the patient settings: these tests check the settings that a user gets."""


def settings_of(url: str) -> dict[str, Any]:
    """The settings of the connections that the URL's client makes."""
    client = connect(url)
    assert isinstance(client, redis.Redis)
    return client.connection_pool.connection_kwargs


def refusal(url: str) -> str:
    with pytest.raises(InvalidURL) as caught:
        connect(url)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "db"),
    [
        ("redis://localhost", "localhost", 6379, 0),
        ("redis://localhost/", "localhost", 6379, 0),
        ("redis://localhost:6380/7", "localhost", 6380, 7),
        ("redis://localhost?db=7", "localhost", 6379, 7),
        ("redis://10.0.0.1:1", "10.0.0.1", 1, 0),
        ("redis://[::1]:65535/2", "::1", 65535, 2),
        ("redis://[fe80::1%25eth0]", "fe80::1%eth0", 6379, 0),
        ("rediss://cache.example.org:6390/1", "cache.example.org", 6390, 1),
    ],
)
def test_host_port_and_database_are_read(url: str, host: str, port: int, db: int):
    settings = settings_of(url)
    assert (settings["host"], settings["port"], settings.get("db", 0)) == (host, port, db)


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        ("", None, None),
        (":secret@", None, "secret"),
        ("user:secret@", "user", "secret"),
        ("user@", "user", None),
        ("us%40er:p%40%2F%3F%23%3A%25ss@", "us@er", "p@/?#:%ss"),
        ("user:pass:word@", "user", "pass:word"),
        ("user:p@ss@", "user", "p@ss"),
    ],
)
def test_login_is_percent_decoded(login: str, user: str | None, password: str | None):
    settings = settings_of(f"redis://{login}localhost")
    assert (settings.get("username"), settings.get("password")) == (user, password)


def test_login_can_be_in_the_query():
    settings = settings_of("unix:///run/redis.sock?username=user&password=p%26ss")
    assert (settings["username"], settings["password"]) == ("user", "p&ss")


def test_unix_socket_is_read():
    settings = settings_of("unix://:secret@/run/my%20redis.sock?db=3")
    assert (settings["path"], settings["password"], settings["db"]) == ("/run/my redis.sock", "secret", 3)


def test_settings_are_read_in_their_units(tmp_path: Path):
    certificate = tmp_path / "ca.pem"
    certificate.touch()
    settings = settings_of(
        "rediss://localhost?socket_timeout=2.5&socket_connect_timeout=1&health_check_interval=60&max_connections=7"
        f"&client_name=billing&socket_keepalive=false&ssl_ca_certs={certificate}&ssl_cert_reqs=none"
        "&ssl_check_hostname=false&ssl_password=a%26b"
    )
    wanted = {
        "socket_timeout": 2.5,
        "socket_connect_timeout": 1,
        "health_check_interval": 60,
        "client_name": "billing",
        "socket_keepalive": False,
        "ssl_ca_certs": str(certificate),
        "ssl_cert_reqs": "none",
        "ssl_check_hostname": False,
        "ssl_password": "a&b",
    }
    assert {name: settings[name] for name in wanted} == wanted


@pytest.mark.parametrize("url", ["redis://localhost", "unix:///run/redis.sock", "redis+sentinel://localhost/queue"])
def test_nothing_waits_for_ever_by_default(url: str):
    client = connect(url)
    assert isinstance(client, redis.Redis)
    settings = client.connection_pool.connection_kwargs
    assert 0 < settings["socket_connect_timeout"] <= 5
    assert 0 < settings["socket_timeout"] <= 30
    assert 0 < settings["health_check_interval"] <= 60
    assert settings["retry"]._retries == clients.RETRIES
    assert settings["client_name"] == "delayq"
    assert not settings.get("decode_responses", False)


def test_tcp_connections_are_kept_alive():
    settings = settings_of("redis://localhost")
    assert settings["socket_keepalive"] is True
    assert settings["socket_keepalive_options"]


def test_tls_is_only_for_rediss():
    def kinds(url: str) -> type:
        client = connect(url)
        assert isinstance(client, redis.Redis)
        return type(client.connection_pool.make_connection())

    assert issubclass(kinds("rediss://localhost"), redis.SSLConnection)
    assert issubclass(kinds("rediss+sentinel://localhost/queue"), redis.SSLConnection)
    assert not issubclass(kinds("redis://localhost"), redis.SSLConnection)
    assert not issubclass(kinds("redis+sentinel://localhost/queue"), redis.SSLConnection)


def test_sentinels_and_their_login_are_read():
    client = connect(
        "redis+sentinel://user:secret@one:1,[::1]:2,three/my%20queue/5?sentinel_username=watch&sentinel_password=other"
    )
    assert isinstance(client, redis.Redis)
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert (pool.service_name, pool.is_master) == ("my queue", True)
    assert {name: pool.connection_kwargs[name] for name in ("username", "password", "db")} == {
        "username": "user",
        "password": "secret",
        "db": 5,
    }
    sentinels = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in sentinels] == [("one", 1), ("::1", 2), ("three", 26379)]
    assert {(one["username"], one["password"], one["db"]) for one in sentinels} == {("watch", "other", 0)}


def test_sentinels_get_only_their_own_login():
    client = connect("redis+sentinel://user:secret@one/queue")
    assert isinstance(client, redis.Redis)
    (sentinel,) = client.connection_pool.sentinel_manager.sentinels  # type: ignore[attr-defined]
    settings = sentinel.connection_pool.connection_kwargs
    assert (settings["username"], settings["password"]) == (None, None)


def test_missing_cluster_is_reported_with_its_address():
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1\b"):
        connect("redis+cluster://user:secret@127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "folder"), [("embedded:///var/my%20store", Path("/var/my store")), ("embedded://", None)]
)
def test_embedded_url_opens_the_store_at_its_path(monkeypatch: pytest.MonkeyPatch, url: str, folder: Path | None):
    opened: list[Path | None] = []
    monkeypatch.setattr(open_client, "open_store", opened.append)
    connect(url)
    assert opened == [folder]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "redis://"),
        ("localhost:6379", "redis://"),
        ("http://localhost", "redis://"),
        ("redis:/localhost", "redis://"),
        ("redis://", "has no host"),
        ("redis:///0", "has no host"),
        ("redis://:secret@/0", "has no host"),
        ("redis://one,two", "more than one host"),
        ("redis://host\n", "a space or a line break"),
        ("redis://host:0", "the port 0"),
        ("redis://host:65536", "the port 65536"),
        ("redis://host:port", "host:port"),
        ("redis://::1", r"\[IPv6\]:port"),
        ("redis://[::1", r"\[IPv6\]:port"),
        ("redis://[::1]x", r"\[IPv6\]:port"),
        ("redis://host/zero", r"the database \*\*\*: give a number"),
        ("redis://host/-1", "the database '-1'"),
        ("redis://host/0/1", r"the database \*\*\*: give a number"),
        ("redis://host/1?db=1", "two databases"),
        ("redis://host?db=1.5", "db to '1.5'.*whole number from 0"),
        ("redis://host?db=", "db to ''"),
        ("redis://host#0", "out of place"),
        ("redis+sentinel://host", "has no service name"),
        ("redis+sentinel://host:26379/", "has no service name"),
        ("redis+sentinel://one,,two/service", "has no host"),
        ("redis+sentinel://one/queue;x", "invalid service name"),
        ("redis+sentinel://one,two:99999/service", "the port 99999"),
        ("redis+sentinel://one/service/x", "the database 'x'"),
        ("redis+cluster://host/1", "the database '1'.*cluster"),
        ("redis+cluster://host?db=0", "unknown setting db"),
        ("redis+cluster://", "has no host"),
        ("unix://", "has no path"),
        ("unix://run/redis.sock", "third slash|three slashes"),
        ("unix:///run/redis.sock?socket_keepalive=true", "unknown setting socket_keepalive"),
        ("embedded://data/store", "three slashes"),
        ("embedded:///", "has no path"),
        ("embedded:///store?db=1", "unknown setting db: embedded has none, so leave it out"),
        ("embedded:///store?password=p", "unknown setting password: embedded has none, so leave it out"),
        ("redis://host?sockettimeout=1", "unknown setting sockettimeout.*socket_timeout"),
        ("redis://host?ssl_ca_certs=/x", "unknown setting ssl_ca_certs"),
        ("redis://host?decode_responses=true", "decode_responses.*bytes"),
        ("redis://host?socket_timeout=0", "socket_timeout to '0'"),
        ("redis://host?socket_timeout=-1", "socket_timeout to '-1'.*from 0.001"),
        ("redis://host?socket_timeout=nan", "socket_timeout to 'nan'"),
        ("redis://host?socket_timeout=inf", "socket_timeout to 'inf'"),
        ("redis://host?socket_timeout=5s", "socket_timeout to '5s'"),
        ("redis://host?socket_timeout", "socket_timeout to ''"),
        ("redis://host?socket_timeout=1&socket_timeout=2", "socket_timeout twice"),
        ("redis://:a@host?password=b", "password twice"),
        ("redis://host?max_connections=0", "max_connections to '0'"),
        ("redis://host?socket_keepalive=maybe", r"socket_keepalive to \*\*\*: give true or false"),
        ("redis://host?client_name=two%20words", r"client_name to \*\*\*: give a word"),
        ("rediss://host?ssl_ca_certs=/no/such/file", "ssl_ca_certs to '/no/such/file'.*exists"),
        ("rediss://host?ssl_cert_reqs=perhaps", r"ssl_cert_reqs to \*\*\*: give required or optional or none"),
    ],
)
def test_wrong_url_is_refused_with_its_value_and_a_remedy(url: str, said: str):
    with pytest.raises(InvalidURL, match=said):
        check(url)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("valkey://:p@host:1/2", "redis://:p@host:1/2"),
        ("Valkeys://host?ssl_cert_reqs=none", "rediss://host?ssl_cert_reqs=none"),
        ("valkey+sentinel://a,b/service", "redis+sentinel://a,b/service"),
        ("valkeys+sentinel://a/service", "rediss+sentinel://a/service"),
        ("valkey+unix:///run/a.sock", "unix:///run/a.sock"),
        ("redis+socket:///run/a.sock?db=2", "unix:///run/a.sock?db=2"),
        ("redis+unix:///run/a.sock", "unix:///run/a.sock"),
        ("rediss://host?ssl_cert_reqs=CERT_NONE", "rediss://host?ssl_cert_reqs=none"),
        ("rediss://host?ssl_cert_reqs=CERT_REQUIRED", "rediss://host?ssl_cert_reqs=required"),
        ("rediss://host?ssl_cert_reqs=Optional", "rediss://host?ssl_cert_reqs=optional"),
    ],
)
def test_url_can_be_written_as_other_programs_write_it(written: str, same: str):
    calls: list[Any] = []
    makers = Makers(*[lambda *given, **_options: calls.append(given)] * 5)
    make(written, makers)
    make(same, makers)
    assert calls[0] == calls[1]
    assert redact(written.replace(":p@", ":s3cret@")).partition("?")[0] == redact(same).partition("?")[0]


@pytest.mark.parametrize("api", ["blocking", "aio"])
def test_sentinels_that_cannot_be_reached_are_named(api: str):
    url = "redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2/queue"

    def stats() -> object:
        return asyncio.run(aio.Queue("a", url=url).stats()) if api == "aio" else Queue("a", url=url).stats()

    with pytest.raises(ServerUnreachable, match=r"none of the sentinels answers: 127.0.0.1:1, 127.0.0.1:2") as refused:
        stats()
    assert "s3cret" not in str(refused.value)


PLAIN, TLS = "redis://:KEY@host:6379", "rediss://:KEY@host:6380"
ENCODED = "with / ? # @ & % in KEY percent-encoded"


@pytest.mark.parametrize(
    ("text", "what", "form"),
    [
        ("host:6380,password=p,ssl=True,abortConnect=False", "connection string", TLS),
        ("server=host;password=p", "connection string", PLAIN),
        ("redis://host;password=p", "connection string", PLAIN),
        ('{"host": "host", "password": "p", "tls": true}', "connection string", TLS),
        ("password: p", "connection string", PLAIN),
        ("redis-cli -u redis://default:p@host:6379", "command line", PLAIN),
        ("redis-cli --tls -h host -p 6379 -a p", "command line", TLS),
        ("-h host -a p", "command line", PLAIN),
        ("REDIS_URL=redis://:p@host", "other text before it", PLAIN),
        ("export REDIS_URL='rediss://:p@host'", "other text before it", TLS),
        ("- REDIS_URL=redis://:p@host", "other text before it", PLAIN),
        ('- "REDIS_URL: redis://:p@host"', "other text before it", PLAIN),
        ("- redis://:p@host", "other text before it", PLAIN),
        ("-e REDIS_URL=rediss://:p@host", "other text before it", TLS),
        ('{"url":"redis://:p@host"}', "other text before it", PLAIN),
        ('"REDIS_URL": "redis://:p@host",', "other text before it", PLAIN),
        ('["redis://:p@host"]', "other text before it", PLAIN),
        ("(redis://:p@host)", "other text before it", PLAIN),
        ("--url=redis://:p@host", "other text before it", PLAIN),
        ("REDIS_URL=REDIS://:p@host", "other text before it", PLAIN),
        (" redis://:p@host", "begins with a space", PLAIN),
        ("\tRediss://:p@host", "begins with a space", TLS),
        ("\ufeffredis://:p@host", "an invisible character", PLAIN),
        ("redis-sentinel://:p@host/service", "unknown scheme", "redis+sentinel://:KEY@host:26379/service"),
        ("sentinel://host/service", "unknown scheme", "redis+sentinel://:KEY@host:26379/service"),
        ("redis-cluster://:p@host", "unknown scheme", "redis+cluster://:KEY@host:6379"),
        ("redis-unix:///run/redis.sock", "unknown scheme", "unix:///path/of/socket"),
        ("redis-socket:///run/redis.sock", "unknown scheme", "unix:///path/of/socket"),
        ("keydb://:p@host", "unknown scheme", PLAIN),
        ("Redis+TLS://:p@host", "unknown scheme", TLS),
        ("$REDIS_URL", "the name of a variable", "double quotes"),
        ("redis://${HOST}:6379", "the name of a variable", "double quotes"),
        ('"redis://:p@host"', "quotes around it", PLAIN),
        ("redis://:p@host'", "quotes around it", PLAIN),
        ("redis%3A%2F%2F%3Ap%40host", "percent-encoded as a whole", PLAIN),
        ("redis%253A%252F%252F%253Ap%2540host", "percent-encoded as a whole", PLAIN),
        ("redis://%3Ap%40host:6379", "percent-encoded as a whole", PLAIN),
        ("jdbc:redis://host?password=p", "JDBC", PLAIN),
        ("host:6379", "no scheme", PLAIN),
        ("user:p@host:6379", "no scheme", PLAIN),
        ("redis://:p/p@host", "out of place", PLAIN),
        ("redis://:p?p@host", "out of place", PLAIN),
        ("redis://:p#p@host", "out of place", PLAIN),
    ],
)
def test_text_that_is_not_a_url_is_refused_with_the_form_to_write(text: str, what: str, form: str):
    said = refusal(text)
    assert what in said
    assert form in said
    is_only_to_be_cut = what in ("other text before it", "begins with a space", "an invisible character")
    assert (
        ENCODED in said or is_only_to_be_cut or what in ("quotes around it", "unknown scheme", "the name of a variable")
    )


def test_finding_a_remedy_takes_no_longer_for_long_texts():
    for text in ("a" * 1_000_000, "a://" * 400_000, "-" * 1_000_000, '"' * 1_000_000, "%25" * 400_000):
        began = time.process_time()
        assert "secret" not in refusal(f"{text}secret")
        assert time.process_time() - began < 1


@pytest.mark.parametrize("url", ["REDIS://localhost:1/2", "Redis://localhost:1/2"])
def test_case_of_the_scheme_does_not_matter(url: str):
    assert settings_of(url)["db"] == 2
    assert redact(f"{url}?password=p") == f"{url.lower()}?password=***"


@pytest.mark.parametrize("password", ["a;b", "a,b", "a b", "a\nb", "a=b", "a@b", "a:b"])
def test_password_with_other_characters_needs_no_encoding(password: str):
    assert settings_of(f"redis://:{password}@localhost")["password"] == password


@pytest.mark.parametrize(
    "path", ["/:p@/run/s", "/p@/run/s", "/%3Ap%40/run/s", "/%253Ap%2540/run/s", "/run/s;password=p"]
)
@pytest.mark.parametrize("scheme", ["unix", "embedded"])
def test_password_after_three_slashes_is_refused(scheme: str, path: str):
    assert "a password in its path: put it before that" in refusal(f"{scheme}://{path}")


@pytest.mark.parametrize("url", [None, b"redis://localhost", 6379])
def test_url_that_is_not_text_is_refused(url: Any):
    with pytest.raises(InvalidURL, match=type(url).__name__):
        check(url)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://host", "redis://Host:6379/0", True),
        ("redis://host", "valkey://host/?db=0", True),
        ("redis://ann:one@host/0", "redis://bob:two@host?socket_timeout=3", True),
        ("redis://host", "redis://host/1", False),
        ("redis://host", "rediss://host", False),
        ("redis://host", "redis://host:6380", False),
        ("redis://host", "redis+cluster://host", False),
        ("redis://[::1]", "redis://[::1]:6379", True),
        ("unix:///run/a", "redis+socket:///run/a?db=0", True),
        ("unix:///run/a", "unix:///run/b", False),
        ("redis+sentinel://a,b/jobs", "redis+sentinel://b:26379,a/jobs/0", True),
        ("redis+sentinel://a,b/jobs", "redis+sentinel://a,b/other", False),
        ("redis+cluster://a,b", "redis+cluster://b,a:6379/0", True),
        ("redis+cluster://a,b", "redis+cluster://a", False),
        ("embedded://", f"embedded://{Path.cwd() / '.delayq'}", True),
        ("embedded:///a", "embedded:///b", False),
        ("a client of redis-py", "redis://host", False),
    ],
)
def test_same_server_is_found_however_it_is_written(one: str, other: str, same: bool, monkeypatch: pytest.MonkeyPatch):
    for variable in "DELAYQ_HOME", "DELAYQ_REQUIRE_URL":
        monkeypatch.delenv(variable, raising=False)
    assert is_same_server(redact(one) if "://" in one else one, redact(other)) is same
    assert is_same_server(redact(other), redact(one) if "://" in one else one) is same
