"""Options with which Java starts a Spark in half the time, and the archive of Spark's classes that they use.

Without the archive, Java spends half of a short program's time on reading and verifying the same classes.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

# For processes that live a minute: the second compiler takes longer than it saves. Without it, Java keeps less room for
# code and discards compiled code, so the size is set to the usual one.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_SILENT = "-Xlog:disable"  # another Java, or another Spark, cannot use the archive; it would warn and go on without
_PROGRAM = """
from delayq.spark import session

spark = session(settings={"spark.ui.enabled": "false"})
spark.sql("SELECT id, count(*) FROM range(100) GROUP BY id").toPandas()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()  # so that it ends, and writes the archive
java.wait()
"""


def classes(config: pytest.Config) -> Path:
    """Return the file for the archive, which is kept between runs of the tests."""
    return Path(config.cache.mkdir("java")) / "spark.jsa"


def with_classes(archive: Path) -> str:
    """Return the options with which Java uses an archive; a missing one is ignored."""
    return f"{_SILENT} -XX:SharedArchiveFile={archive}"


def archive(path: Path) -> None:
    """Write the archive, if there is none. Other processes that want to do the same wait for it."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(".part")
            own = os.environ | {"SPARK_SUBMIT_OPTS": f"{JAVA} {_SILENT} -XX:ArchiveClassesAtExit={part}"}
            subprocess.run([sys.executable, "-c", _PROGRAM], env=own, check=True)
            if part.exists():  # some Javas cannot write one
                part.rename(path)
