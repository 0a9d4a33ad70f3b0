"""Which process of pytest-xdist runs which test."""

from __future__ import annotations

import re
from functools import cache

from xdist.scheduler import LoadScopeScheduling

from tests.house.tree import ROOT


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Deals tests out one by one, but those that ask for a session of Spark all to one process, and these first.

    So there is one session, which takes seconds to begin and to become quick; likewise the tests in a browser. xdist's
    own groups of tests are no help: it writes them where pytest 9.2 no longer looks.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith("tests/web/test_browser"):
            return "browser"
        return "spark" if path.startswith("tests/spark/") and asks_for_spark(path) else nodeid


@cache
def asks_for_spark(path: str) -> bool:
    """Tell whether a file has tests for which the fixture `spark` is."""
    return bool(re.search(r"\bspark: SparkSession|usefixtures\(\"spark\"\)", (ROOT / path).read_text()))
