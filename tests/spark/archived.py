"""The classes of Spark, parsed and verified once for all Javas that tests start: Java calls it class data sharing.

The session of a run of tests that finds no archive of them leaves one when it ends, for the next run: in the folder
that pytest keeps from run to run. With it, a Java of Spark's is there for three fifths of the work.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from delayq.spark import java
from tests.house.tree import ROOT

QUIET = "-Xlog:disable"  # an archive that does not fit is no news: Java goes on without it


def archive() -> Path:
    """Return where the archive of this Java and this Spark is, if it is there."""
    home = java.provide()
    said = java.ask(home / "bin" / "java")
    key = f"{home.resolve()} {said} {pyspark.__file__} {pyspark.__version__}"
    return ROOT / ".pytest_cache" / "d" / "spark" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """Return the option of a Java that takes its classes from the archive; "" when there is none."""
    path = archive()
    return f'-XX:SharedArchiveFile="{path}" {QUIET}' if path.exists() else ""


@contextmanager
def left() -> Iterator[str]:
    """Yield the options of the Java that this process starts; at the end it has ended, and left what was not there.

    A machine that is made anew for each run would pay for an archive, and have nothing of it: there, none is left.
    """
    path = archive()
    if path.exists() or "CI" in os.environ:
        for other in path.parent.glob(f"{path.stem}.*"):
            if other != path:
                other.unlink(missing_ok=True)  # of a run that was killed, or that is too late
        yield options()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_suffix(f".{uuid.uuid4().hex}")
    yield f'-XX:ArchiveClassesAtExit="{hidden}" {QUIET}'
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with that
    gateway.proc.wait()
    if hidden.exists():
        hidden.rename(path)
