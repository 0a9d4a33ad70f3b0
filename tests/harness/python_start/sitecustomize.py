"""Imported first by the Pythons that tests start, unless a test sets their PYTHONPATH: it makes them start sooner.

- It hides OpenTelemetry's SDK for metrics, which redis-py imports wherever it is installed, and which takes a sixth of
  the time of a short command. The tests install it, but most users do not. Set PYTHONPATH to "" for a program that
  needs it.
- It lets Spark's Pythons import pyspark as installed and compiled. Spark would import it from a zip of sources, which
  costs half a second each time, and Java waits only ten seconds for a new Python to call back, even on a busy machine.
- It imports delayq in the Python that Spark forks workers from, so that the workers need not: there is a new one after
  each error. A Python that Spark starts for itself, such as to plan a stream, imports delayq after it called back.

Python imports only one module of this name: a sitecustomize of your own does not run in these Pythons.
"""

import contextlib
import sys

sys.modules["opentelemetry.sdk.metrics"] = None  # type: ignore[assignment]
sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
if "pyspark.daemon" in sys.orig_argv:
    with contextlib.suppress(ModuleNotFoundError):  # in a Python without delayq
        import delayq.spark  # noqa: F401
