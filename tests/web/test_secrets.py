"""Secrets in URLs are never shown: not on a page, not in an error, not in the log."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from delayq import Queue
from delayq.web import Token
from tests.web.conftest import OWN, Enter, act, log_in

PATHS = [
    "/",
    "/main/live",
    "/main/queues/emails",
    "/main/queues/emails/charts",
    "/main/queues/none",
    "/none/queues/none",
]


def test_password_of_a_working_server_is_never_shown(enter: Enter, start_server):
    server = start_server(port=True, config={"requirepass": "hunter2-secret"})
    url = f"redis://default:hunter2-secret@127.0.0.1:{server.port}/0"
    with Queue("emails", url=url) as queue, capture_logs() as lines:
        queue.send("hello")
        for servers in (url, {"main": url}):
            client = enter(servers=servers)
            found = [client.get(path) for path in PATHS if not path.endswith("live")]
            found += [act(client, "/main/queues/emails/pause")]
            assert not [each for each in found if "hunter2" in each.text + str(each.headers)]
        assert client.get("/main/queues/emails").status_code == 200
    assert "hunter2" not in str(lines)


@pytest.mark.full
def test_password_of_an_unreachable_or_refusing_server_is_never_shown(enter: Enter, start_server):
    refusing = start_server(port=True, config={"requirepass": "another"})
    for port in (1, refusing.port):
        url = f"redis://default:hunter2-secret@127.0.0.1:{port}/0"
        with capture_logs() as lines:
            client = enter(servers={"main": url})
            found = [client.get(path) for path in PATHS if not path.endswith("live")]
        assert {found[0].status_code, found[1].status_code} == {503}
        assert not [each for each in found if "hunter2" in each.text + str(each.headers)]
        assert "hunter2" not in str(lines)


def test_guessed_secrets_are_not_logged(enter: Enter):
    lines: list[object] = []
    client = enter(login=Token("a token that is long enough"), audit=lines.append)
    log_in(client, "a tokem that is long enough")
    log_in(client, "a token that is long enough")
    client.post("/logout", headers=OWN)
    logged = [(line["action"], line["outcome"].partition(":")[0]) for line in lines if isinstance(line, dict)]
    assert logged == [("login", "refused"), ("login", "done"), ("logout", "refused")]  # the last form was forged
    assert "long enough" not in str(lines)
