"""`import delayq` loads few modules beside those of redis, so that programs and commands start quickly.

A new one needs a row here: measure it with `python -X importtime`, and import what is seldom used where it is used.
"""

from __future__ import annotations

import subprocess
import sys

OTHERS = {"cronsim", "msgspec", "typing_extensions"}
STANDARD = {
    *("decimal", "difflib", "email", "encodings", "hmac", "importlib", "multiprocessing", "numbers", "pickle"),
    *("secrets", "shlex", "stringprep", "sysconfig", "unicodedata", "zoneinfo"),
}
SCRIPT = "import sys, redis; before = set(sys.modules); import delayq; print(*sorted(set(sys.modules) - before))"


def test_import_loads_only_these_packages_beside_redis():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()} - {"delayq", "redis"}
    assert {name for name in loaded if not name.startswith("_")} - OTHERS - STANDARD == set()
