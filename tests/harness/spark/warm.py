"""Makes the Python processes that Spark starts ready sooner."""

from __future__ import annotations

from pathlib import Path

PREPARED = """\
import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
if "pyspark.daemon" in sys.orig_argv:
    import delayq.spark
"""


def warm(folder: Path) -> Path:
    """Prepare a folder that makes every Python started by Spark start faster, once it is on its path.

    It imports pyspark as installed and compiled. Spark would import it from a zip of sources, which costs half a
    second each time, and Java waits only ten seconds for a new Python to call back, even on a busy machine. The
    Python that Spark forks workers from imports delayq first, so that the workers need not: there is a new one after
    each error. A Python that Spark starts for itself, such as to plan a stream, imports delayq after it called back.
    """
    (folder / "sitecustomize.py").write_text(PREPARED)
    return folder
