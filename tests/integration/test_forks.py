"""A process that is forked while another thread makes its first connection."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import StartServer

FORKING = """
import asyncio, os, signal, sys, threading
import delayq, delayq.aio

url, face = sys.argv[1:]
importing, forked = threading.Event(), threading.Event()

def watch(event, args):
    if event == "exec" and threading.current_thread() is thread:  # the body of a module: its lock is held
        importing.set()
        forked.wait()

def send():
    if face == "aio":
        asyncio.run(delayq.aio.Queue("jobs", url=url).send("x"))
    else:
        delayq.Queue("jobs", url=url).send("x")

thread = threading.Thread(target=send)
sys.addaudithook(watch)
thread.start()
while thread.is_alive() and not importing.wait(0.01):
    pass
child = os.fork()
if child == 0:
    signal.alarm(10)
    send()
    os._exit(0)
forked.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("face", ["sync", "aio"])
def test_child_that_is_forked_during_the_first_connection_can_send(face: str, start_server: StartServer):
    url = f"redis://localhost:{start_server(port=True).port}"
    command = [sys.executable, "-c", FORKING, url, face]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
