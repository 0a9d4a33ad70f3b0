"""The backend for Django's tasks: on each version of Django, and on each database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.django_sites import NO_PYTHON, DjangoSite, framework_tests, postgresql, python
from tests.harness.servers import RedisServer

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]


def test_python_for_django_is_there():
    """It fails where there is none: these tests are never skipped."""
    assert python(), NO_PYTHON


@pytest.mark.parametrize("version", ["6.1", "6.0", "5.2"])
def test_backend_on_sqlite(tmp_path: Path, redis_server: RedisServer, version: str):
    passes(DjangoSite(version, tmp_path, redis_server.url), "shop")


def test_backend_on_postgresql(tmp_path: Path, redis_server: RedisServer):
    with postgresql() as socket:
        passes(DjangoSite("6.1", tmp_path, redis_server.url, socket), "shop")


def test_tests_of_django_itself(tmp_path: Path, redis_server: RedisServer):
    site = DjangoSite("6.1", tmp_path, redis_server.url)
    site.env["PYTHONPATH"] = str(framework_tests())
    passes(site, "framework")


def passes(site: DjangoSite, app: str) -> None:
    """Check that the tests of an app of the site have run, and that all have passed."""
    output = site.run("test", app)
    ran = re.search(r"^Ran (\d+) tests? in", output, re.MULTILINE)
    assert int(ran[1] if ran else 0) > 20, output
    assert re.search(r"^OK\b", output, re.MULTILINE), output
