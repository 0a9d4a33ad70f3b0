"""Peers' programs: what their headers ask for, and what happens if they misbehave."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.environments import NoEnvironment, command_for, requirements
from benchmarks.programs import PEERS, PeerFailed, PeerProgram, Program, Unsupported, find_programs
from tests.harness.proc import needs_proc
from tests.harness.stores import is_alive
from tests.harness.waiting import eventually

PATIENCE = 240.0  # seconds, which no test checks

PYTHON = """# /// script
# requires-python = ">=3.11"
# dependencies = ["huey==3.5.4", "redis==8.1.0"]
# ///
"""


def peer(tmp_path: Path, program: str) -> PeerProgram:
    path = tmp_path / "program.py"
    path.write_text(f"import json, os, sys, time\n{program}\n")
    return PeerProgram("peer", [sys.executable, str(path)], {"peer": "Peer"})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (PYTHON, ["huey==3.5.4", "redis==8.1.0"]),
        ("// npm: bullmq@6.7.0 ioredis@6.0.0\nimport x\n", ["bullmq@6.7.0", "ioredis@6.0.0"]),
        ("// go: github.com/hibiken/asynq@v0.25.1\n//\npackage main\n", ["github.com/hibiken/asynq@v0.25.1"]),
        ('"""delayq itself."""\n', []),
    ],
    ids=["python", "node", "go", "none"],
)
def test_header_of_a_program_lists_its_packages(text: str, wanted: list[str]):
    assert requirements(text) == wanted


def test_every_peers_program_pins_its_packages():
    programs = find_programs()
    assert next(iter(programs)) == "delayq"
    for key, path in programs.items():
        for each in requirements(path.read_text()):
            assert ("==" in each) if path.suffix == ".py" else ("@" in each.removeprefix("@")), (key, each)


def test_shared_files_are_not_programs():
    assert "protocol" not in find_programs()
    assert (PEERS / "protocol.py").exists()


def test_program_without_a_header_runs_on_this_interpreter(tmp_path: Path):
    path = tmp_path / "delayq_peer.py"
    path.write_text("")
    assert command_for(path, tmp_path / "home") == [sys.executable, str(path)]
    assert not (tmp_path / "home").exists()


@pytest.mark.full
def test_environment_is_recreated_only_for_other_packages(tmp_path: Path):
    path = tmp_path / "peer.py"
    path.write_text('# /// script\n# dependencies = ["./nowhere"]\n# ///\n')
    made = tmp_path / "home" / "peer"
    made.mkdir(parents=True)
    (made / "made-for").write_text("./nowhere")
    assert command_for(path, tmp_path / "home") == [str(made / "bin" / "python"), str(path)]
    (made / "made-for").write_text("another==1")
    with pytest.raises(NoEnvironment, match="nowhere"):
        command_for(path, tmp_path / "home")
    assert not (made / "made-for").exists()  # the next run tries again


def test_go_program_cannot_be_built_without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEnvironment, match="go is not installed"):
        command_for(PEERS / "asynq.go", tmp_path / "home")


def test_answer_is_the_last_line(tmp_path: Path):
    program = "print('noise'); print(json.dumps(sys.argv[1:]) and json.dumps({'argv': sys.argv[1:]}))"
    answer = peer(tmp_path, program).ask("fill", "redis://h", PATIENCE, messages=3, delay=0.5)
    assert answer == {"argv": ["fill", "--url", "redis://h", "--messages", "3", "--delay", "0.5"]}


def test_answer_longer_than_a_pipe_is_complete(tmp_path: Path):
    answer = peer(tmp_path, "print(json.dumps({'late': [0.12] * 100_000}))").ask("consume", "redis://h", PATIENCE)
    assert len(answer["late"]) == 100_000


def test_unsupported_verb_is_not_a_failure(tmp_path: Path):
    with pytest.raises(Unsupported, match="no such call"):
        peer(tmp_path, "print(json.dumps({'unsupported': 'no such call'}))").ask("send-bulk", "redis://h", PATIENCE)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("sys.exit('the reason')", r"exited with code 1: the reason"),
        ("print('hello')", "answered 'hello', which is not JSON"),
        ("", "answered '', which is not JSON"),
        ("time.sleep(3600)", "printed nothing for"),
    ],
    ids=["exit", "words", "silence", "hang"],
)
def test_program_that_misbehaves_has_failed(program: str, said: str, tmp_path: Path):
    with pytest.raises(PeerFailed, match=said):
        peer(tmp_path, program).ask("fill", "redis://h", 0.1 if "sleep" in program else PATIENCE)


@needs_proc
def test_consumer_is_awaited_until_ready_and_killed_at_the_end(tmp_path: Path):
    consuming = peer(tmp_path, "print('ready', flush=True); os.fork(); time.sleep(3600)")
    with Program(consuming, "consume", "redis://h") as program:
        program.wait_ready(PATIENCE)
        assert eventually(lambda: len(processes.family(program.process.pid)) == 2)
        found = processes.family(program.process.pid)
        assert processes.resident_bytes(program.process.pid) > 1_000_000
        assert processes.cpu_seconds(program.process.pid) > 0
    assert eventually(lambda: not any(map(is_alive, found)))


def test_consumer_that_prints_anything_but_ready_has_failed(tmp_path: Path):
    consuming = peer(tmp_path, "print('hello')")
    with Program(consuming, "consume", "redis://h") as program, pytest.raises(PeerFailed, match="printed 'hello'"):
        program.wait_ready(PATIENCE)


@needs_proc
def test_cpu_time_of_a_process_is_finer_than_a_tick():
    pid = os.getpid()
    before = processes.cpu_seconds(pid)
    sum(range(200_000))
    assert 0 < processes.cpu_seconds(pid) - before < 1
