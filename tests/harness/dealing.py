"""Decides which pytest-xdist process runs which test."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from xdist.scheduler import LoadScopeScheduling

from tests.harness.tree import ROOT


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Deals out tests one by one, except that all tests of the Spark session go first, to a single process.

    So there is only one session, which takes seconds to start and to warm up. The same applies to the tests in a
    browser, on a Spark cluster and on a site of Django, and to those that build packages in the checkout. xdist's own
    groups do not help: it writes them where pytest 9.2 does not look.
    """

    def schedule(self) -> None:
        super().schedule()
        # A process starts a test once it knows the next one, or that there is none, so it needs two messages.
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Give the remaining tests of a process to others; return the test during which it died, if any.

        xdist's own version would deal out that test again, and empty units for the finished tests.
        """
        dealt = self.assigned_work.pop(node)
        left = {scope: [test for test, is_done in tests.items() if not is_done] for scope, tests in dealt.items()}
        fatal = next((tests.pop(0) for tests in left.values() if tests), None)
        self.workqueue.update({scope: dict.fromkeys(tests, False) for scope, tests in left.items() if tests})
        for other in self.nodes:
            self._reschedule(other)
        return fatal

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # otherwise it replaces a dead process and has not collected yet
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith("tests/web/test_browser"):
            return "browser"
        if path == "tests/spark/test_clusters.py":
            return "cluster"
        if path == "tests/django/test_site.py":
            return "site"
        if path == "tests/house/test_installs.py":
            return "installs"
        return "spark" if path.startswith("tests/spark/") and asks_for_spark(path) else nodeid


@cache
def asks_for_spark(path: str) -> bool:
    """Return whether the fixture `spark` applies to the tests of a file."""
    return bool(re.search(r"\bspark: SparkSession|usefixtures\(\"spark\"\)", (ROOT / path).read_text()))
