"""Which exceptions the errors of real servers become."""

from __future__ import annotations

import socket
import threading

import pytest
import redis
from redis import exceptions

from delayq import Queue, errors
from delayq.transport.server_check import translate
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.versions import each_version
from tests.harness.waiting import eventually


def refused_by(client: redis.Redis, script: str = "return redis.call('SET', KEYS[1], ARGV[1])") -> Exception:
    with pytest.raises(exceptions.RedisError) as caught:
        client.eval(script, 1, "key", "a payload")
    return caught.value


def test_missing_replicas_are_reported_from_inside_a_script(any_server: RedisServer):
    with any_server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        error = refused_by(client)
        client.config_set("min-replicas-to-write", 0)
    assert isinstance(translate(error), errors.ServerNotReady)


@each_version
def test_replica_is_reported_from_inside_a_script(start_server: StartServer, version: str):
    with start_server(version=version).client() as client:
        client.replicaof("127.0.0.1", "1")
        assert isinstance(translate(refused_by(client)), errors.ServerNotReady)


@each_version
def test_missing_permission_is_reported_from_inside_a_script(start_server: StartServer, version: str):
    only = start_server(version=version)
    with only.client() as admin:
        admin.execute_command("ACL SETUSER", "reader", "on", ">secret", "~*", "+eval")
    with only.client(username="reader", password="secret") as client:
        assert isinstance(translate(refused_by(client)), errors.LoginRefused)


def test_missing_database_is_reported_with_its_server(any_server: RedisServer):
    url = f"{any_server.url}{'&' if '?' in any_server.url else '?'}db=99"
    with Queue("emails", url=url) as queue, pytest.raises(errors.ServerError) as caught:
        queue.stats()
    assert str(caught.value).startswith(str(any_server.socket))
    assert "the server does not have the database in the URL" in str(caught.value)


def test_server_with_too_many_clients_is_not_reported_as_unavailable(own_server: RedisServer):
    with own_server.client() as client, socket.socket(socket.AF_UNIX) as another:
        client.config_set("maxclients", 1)
        another.connect(str(own_server.socket))
        code, _, said = (
            another.recv(1000).decode().strip().partition(" ")
        )  # silently, because the server closes the connection too
    assert code == "-ERR"
    error = translate(exceptions.ConnectionError(said))
    assert isinstance(error, errors.ServerUnreachable)
    assert str(error).endswith("raise its maxclients, or run fewer clients")


def test_busy_server_is_reported(own_server: RedisServer):
    with own_server.client(retry=None, socket_timeout=30) as client, own_server.client(retry=None) as other:
        client.config_set("lua-time-limit", 1)
        running = threading.Thread(target=refused_by, args=(client, "while true do end"))
        running.start()
        with pytest.raises(exceptions.RedisError) as caught:
            assert eventually(lambda: other.get("key") == "never set")
        other.execute_command("SCRIPT KILL")
        running.join()
    assert isinstance(translate(caught.value), errors.ServerNotReady)


CODED = [errors.StaleReceipt, errors.FormatTooNew, errors.ClientTooOld, errors.ShardsMismatch]


@pytest.mark.parametrize("cls", CODED)
def test_error_code_of_a_script_becomes_its_class(any_server: RedisServer, cls: type[errors.DelayqError]):
    script = f"return redis.error_reply('{cls.code} the rest: 1, 2')"
    with any_server.client() as client, client.pipeline(transaction=False) as pipe:
        alone = translate(refused_by(client, script))
        pipe.eval(script, 1, "key", "a payload")
        (listed,) = pipe.execute(raise_on_error=False)
        pipe.eval(script, 1, "key", "a payload")
        with pytest.raises(exceptions.ResponseError) as raised:
            pipe.execute()
    for error in (alone, translate(listed), translate(raised.value)):
        assert type(error) is cls
        assert str(error) == "the rest: 1, 2"


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        (exceptions.ConnectionError("Error 111 connecting"), errors.ServerUnreachable),
        (exceptions.TimeoutError("Timeout reading from socket"), errors.ServerUnreachable),
        (exceptions.AuthenticationError("invalid username-password pair"), errors.LoginRefused),
        (exceptions.NoPermissionError("no permissions"), errors.LoginRefused),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), errors.ServerNotReady),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), errors.ServerNotReady),
        (exceptions.ClusterDownError("The cluster is down"), errors.ServerNotReady),
        (exceptions.MasterDownError("Link with MASTER is down"), errors.ServerNotReady),
        (exceptions.TryAgainError("Multiple keys request during rehashing"), errors.ServerNotReady),
        (exceptions.SlotNotCoveredError("Slot 1 not covered"), errors.ServerNotReady),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), errors.ServerNotReady),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), errors.ServerOutOfMemory),
        (exceptions.MaxConnectionsError("Too many connections"), errors.ServerError),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), errors.KeyOverwritten),
        (exceptions.ResponseError("NOSUCHCODE what nobody has seen"), errors.ServerError),
        (exceptions.DataError("Invalid input of type: 'dict'"), errors.ServerError),
        (exceptions.RedisError(), errors.ServerError),
    ],
)
def test_error_becomes_its_class_and_keeps_its_text(error: Exception, cls: type[errors.DelayqError]):
    translated = translate(error, "host:1")
    assert type(translated) is cls
    assert str(translated).startswith("host:1: ")
    assert str(error).removesuffix(".").removeprefix("MISCONF ") in str(translated)


def test_error_in_a_pipeline_does_not_show_the_payload(redis_server: RedisServer):
    with redis_server.client() as client, client.pipeline() as pipe:
        pipe.execute_command("LPUSH", "key", "a payload\nof (two lines) of pipeline caused error: x")
        pipe.execute_command("GET", "key")
        with pytest.raises(exceptions.ResponseError) as caught:
            pipe.execute()
        assert "WRONGTYPE" in str(translate(caught.value))
        pipe.execute_command("NOSUCHCOMMAND", "a payload\nof (two lines)")
        with pytest.raises(exceptions.ResponseError) as caught:
            pipe.execute()
        assert "of pipeline caused" not in str(translate(caught.value))
