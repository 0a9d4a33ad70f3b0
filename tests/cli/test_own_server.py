"""A queue in a module that names its own server: --url would be ignored, so it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq import Queue, aio
from tests.cli.conftest import Invoke, Run
from tests.harness.servers import RedisServer

SECRET = "s3cretZq9x"
ELSEWHERE = f"redis://:{SECRET}@127.0.0.1:1/0"
CODE = """
import redis
from delayq{face} import Queue
emails = Queue("emails", {place})

@emails.handler
{word}def deliver(message):
    print("handled", message.id)
"""
each_command = pytest.mark.parametrize("words", [["check"], ["consume", "--burst"]], ids=lambda words: words[0])


def written(folder: Path, place: str, face: str = "", word: str = "") -> None:
    (folder / "app.py").write_text(CODE.format(place=place, face=face, word=word))


@each_command
@pytest.mark.parametrize(("face", "word"), [("", ""), (".aio", "async ")], ids=["delayq", "delayq.aio"])
def test_url_is_refused_with_both_servers_and_no_secret(
    words: list[str], face: str, word: str, invoke: Invoke, queue: Queue, server: RedisServer, tmp_path: Path
):
    queue.send("x")
    written(tmp_path, f"url={server.url + f'?password={SECRET}'!r}", face, word)
    for given in ([*words, "app:emails", "--url", ELSEWHERE], ["--url", ELSEWHERE, *words, "app:emails"]):
        done = invoke(*given)
        assert done.exit_code == 2, done.stderr
        assert "--url is redis://:***@127.0.0.1:1/0, but app:emails names its own server, " in done.stderr
        assert str(server.socket) in done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert queue.stats().ready + queue.stats().pending == 1


@each_command
def test_url_is_refused_for_a_queue_with_a_client(
    words: list[str], invoke: Invoke, server: RedisServer, tmp_path: Path
):
    written(tmp_path, f"redis=redis.Redis.from_url({server.url!r})")
    done = invoke(*words, "app:emails", "--url", ELSEWHERE)
    assert (done.exit_code, "its own server, a client of redis-py" in done.stderr) == (2, True), done.stderr


@each_command
def test_same_url_and_a_variable_are_accepted(
    words: list[str], invoke: Invoke, queue: Queue, server: RedisServer, tmp_path: Path
):
    queue.send("x")
    written(tmp_path, f"url={server.url!r}")
    assert invoke(*words, "app:emails", "--url", server.url).exit_code == 0
    assert invoke(*words, "app:emails", env={"DELAYQ_URL": ELSEWHERE}).exit_code == 0


@pytest.mark.full
@pytest.mark.parametrize("options", [["--processes", "2"], ["--recycle-after", "5"]], ids=lambda words: words[0])
def test_url_is_refused_in_each_process(
    options: list[str], delayq: Run, queue: Queue, server: RedisServer, tmp_path: Path
):
    queue.send("x")
    written(tmp_path, f"url={server.url!r}")
    done = delayq("consume", "app:emails", "--burst", *options, "--url", ELSEWHERE)
    assert (done.returncode, "names its own server" in done.stderr) == (2, True), done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert queue.stats().acked == 0


@pytest.mark.parametrize("face", [Queue, aio.Queue], ids=["delayq", "delayq.aio"])
def test_server_of_a_queue_is_the_one_that_it_names(face: type[Queue]):
    assert face("emails").server is None
    assert face("emails", url=ELSEWHERE).server == "redis://:***@127.0.0.1:1/0"
