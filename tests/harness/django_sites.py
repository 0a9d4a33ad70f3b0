"""Environments with Django, and databases, for the tests of `delayq.django`.

Django 6 needs Python 3.12, which the Python that runs the tests may not be. So these tests run in environments of their
own, made once and kept in ``build/django``, as processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tests.harness.tree import ROOT, pyproject

SITE = ROOT / "tests/django/site"
FOLDER = ROOT / "build/django"
NEEDED = {
    "6.1": ("django>=6.1,<6.2",),
    "6.0": ("django>=6.0,<6.1",),
    "5.2": ("django>=5.2,<5.3", "django-tasks>=0.12"),
}
EXTRAS = ("dashboard", "testing")
SDIST = "django==6.1.*"  # whose tests of the framework run, too
LEAST = (3, 12)
NO_PYTHON = (
    f"Django 6 needs Python {LEAST[0]}.{LEAST[1]} or newer, and none is on the PATH or beside this one: install one, "
    f"such as with `pyenv install 3.12` or `uv python install 3.12`, or name one in DELAYQ_DJANGO_PYTHON"
)
SECONDS = 300


@cache
def python() -> Path:
    """Return a Python that Django 6 supports; fails if there is none."""
    names = [f"python3.{minor}" for minor in (12, 13, 14)]
    found = [os.environ.get("DELAYQ_DJANGO_PYTHON"), sys.executable, *map(shutil.which, names)]
    for folder, pattern in (
        (Path(sys.base_prefix).parent, "3.1[2-9]*/bin/python3"),
        (Path.home(), ".pyenv/versions/3.1[2-9]*/bin/python3"),
        (Path.home(), ".local/share/uv/python/cpython-3.1[2-9]*/bin/python3"),
    ):
        found += map(str, sorted(folder.glob(pattern)))
    for each in filter(None, found):
        asks = f"import sys, venv; sys.exit(sys.version_info < {LEAST})"
        said = subprocess.run([each, "-c", asks], stderr=subprocess.DEVNULL, check=False)
        if said.returncode == 0:
            return Path(each)
    raise AssertionError(NO_PYTHON)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make what is in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(version: str) -> Path:
    """Return the Python of an environment with a version of Django and this checkout; makes it if it is missing."""
    made = FOLDER / version
    extras = pyproject()["project"]["optional-dependencies"]
    wanted = f"{python()}\n{NEEDED[version]}\n{[extras[each] for each in EXTRAS]}\n{(ROOT / 'setup.py').read_text()}"
    stamp = made / "made"
    with locked(FOLDER):
        if not stamp.exists() or stamp.read_text() != wanted:
            run(str(python()), "-m", "venv", "--clear", str(made))
            more = ("psycopg[binary]>=3.2", "httpx>=0.28", "gunicorn>=25", "--editable", f"{ROOT}[{','.join(EXTRAS)}]")
            run(str(made / "bin/python"), "-m", "pip", "install", "--quiet", *NEEDED[version], *more)
            stamp.write_text(wanted)
    return made / "bin/python"


def framework_tests() -> Path:
    """Return the folder that has Django's own tests of the framework as the package ``tasks``, from its sdist."""
    folder = FOLDER / "sdist"
    with locked(FOLDER):
        if not (folder / "tasks").exists():
            run(
                str(python()), "-m", "pip", "download", "--quiet", "--no-deps",
                "--no-binary", "django", SDIST, "--dest", str(folder),
            )  # fmt: skip
            [archive] = folder.glob("*.tar.gz")
            with tarfile.open(archive) as files:
                for each in files.getmembers():
                    parts = Path(each.name).parts
                    if parts[1:3] == ("tests", "tasks") and each.isfile():
                        file = files.extractfile(each)
                        assert file is not None
                        (folder / "new").mkdir(exist_ok=True)
                        (folder / "new" / parts[-1]).write_bytes(file.read())
            (folder / "new").rename(folder / "tasks")
    return folder


def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, code: int = 0) -> str:
    """Return the output of a program that must end with this code."""
    ended = subprocess.run(
        words,
        env=env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == code, f"{' '.join(words)} ended with {ended.returncode}:\n{ended.stdout[-8000:]}"
    return ended.stdout


class DjangoSite:
    """The site of the tests with its own databases, and queues with a prefix of their own. Close it.

    Args:
        version: of Django.
        folder: for its SQLite databases.
        redis: the URL of the server.
        postgresql: the folder of the socket of PostgreSQL; None for SQLite.
    """

    def __init__(self, version: str, folder: Path, redis: str, postgresql: Path | None = None) -> None:
        self.python = str(environment(version))
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "PYTEST_"))},
            "PYTHONWARNINGS": "error::RuntimeWarning",
            "SITE_FOLDER": str(folder),
            "SITE_REDIS": redis,
            "SITE_PREFIX": f"test-{uuid.uuid4().hex[:12]}",
            "SITE_POSTGRESQL": str(postgresql or ""),
        }
        self.folder = folder

    def manage(self, *words: str, code: int = 0) -> str:
        """Return the output of manage.py, run in another folder, as a service manager does."""
        return self._asked({"words": words}, code)

    def run(self, *words: str) -> str:
        """Return the output of manage.py as a process of its own."""
        return run(self.python, str(SITE / "manage.py"), *words, env=self.env, cwd=self.folder)

    def shell(self, lines: str) -> str:
        """Return the output of lines of Python within the site."""
        return self._asked({"code": lines}, 0)

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start manage.py as a process of its own, which writes to a log."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [self.python, str(SITE / "manage.py"), *words], env=self.env, cwd=self.folder, stderr=file
            )

    def close(self) -> None:
        """End the process that runs the requests."""
        if "_resident" in vars(self):
            with self._resident:
                self._resident.kill()

    @cached_property
    def _resident(self) -> subprocess.Popen[str]:
        command = [self.python, str(SITE / "resident.py")]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.env, cwd=self.folder, stdin=pipe, stdout=pipe, text=True)

    def _asked(self, request: dict[str, Any], code: int) -> str:
        output = self.folder / "output"
        asked, answers = self._resident.stdin, self._resident.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps({**request, "output": str(output)}) + "\n")
        asked.flush()
        ended = answers.readline()
        said = output.read_text()
        assert int(ended) == code, f"{request} ended with {ended}:\n{said[-8000:]}"
        return said


POSTGRESQL = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/local/pgsql/bin")


def postgresql_programs() -> Path:
    """Return the folder of PostgreSQL's programs; fails if there is none."""
    for pattern in POSTGRESQL:
        for each in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            if (each / "initdb").exists():
                return each
    raise AssertionError("PostgreSQL is missing: install it (Debian: apt install postgresql)")


@contextmanager
def postgresql() -> Iterator[Path]:
    """Run PostgreSQL; the result is the folder of its socket."""
    programs = postgresql_programs()
    folder = Path(tempfile.mkdtemp(prefix="dqpg"))  # a socket's path is short, and another user may enter it
    as_user: list[str] = []
    if os.geteuid() == 0:  # as root, PostgreSQL refuses to start
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, "nobody", "nogroup")
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        data, log = folder / "data", stack.enter_context((folder / "log").open("wb"))
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        run(*as_user, *initdb, env=env, cwd=folder)
        options = ["-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        options += ["-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "shared_buffers=16MB"]
        command = [*as_user, str(programs / "postgres"), *options]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder)
        stack.callback(server.wait, 30)
        stack.callback(server.send_signal, signal.SIGINT)  # it ends its clients' sessions
        end = time.monotonic() + SECONDS
        while subprocess.run([programs / "pg_isready", "-h", folder, "-q"], check=False, env=env).returncode:
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        yield folder
