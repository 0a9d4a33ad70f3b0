"""Which process of pytest-xdist runs which test."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.harness.tree import ROOT


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Deals tests out one by one, but those that ask for a session of Spark all to one process, and these first.

    So there is one session, which takes seconds to begin and to become quick; likewise the tests in a browser, and
    those on a cluster of Spark. xdist's own groups of tests are no help: it writes them where pytest 9.2 no longer
    looks.
    """

    def schedule(self) -> None:
        super().schedule()
        # A process begins a test when it knows of the next one, or that there is none: it needs to be told twice.
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Give what a process was yet to run to others, and return the test at which it died, if it was at one.

        xdist's own would deal out that one anew, and the process's finished tests as units of none.
        """
        dealt = self.assigned_work.pop(node)
        left = {scope: [test for test, is_done in tests.items() if not is_done] for scope, tests in dealt.items()}
        fatal = next((tests.pop(0) for tests in left.values() if tests), None)
        self.workqueue.update({scope: dict.fromkeys(tests, False) for scope, tests in left.items() if tests})
        for other in self.nodes:
            self._reschedule(other)
        return fatal

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # else it has yet to find the tests: it replaces one that died
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith("tests/web/test_browser"):
            return "browser"
        if path == "tests/spark/test_clusters.py":
            return "cluster"
        return "spark" if path.startswith("tests/spark/") and asks_for_spark(path) else nodeid


@cache
def asks_for_spark(path: str) -> bool:
    """Tell whether a file has tests for which the fixture `spark` is."""
    return bool(re.search(r"\bspark: SparkSession|usefixtures\(\"spark\"\)", (ROOT / path).read_text()))
