"""How to install an extra, for each way in which delayq may be installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from delayq.model import extras


def test_checkout_is_installed_with_the_extra(tmp_path: Path):
    checkout = tmp_path / "my work"
    (checkout / "lua").mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    assert extras.install("lake", checkout) == f"pip install --editable '{checkout}[lake]'"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'delayq[lake]'"),
        ('{"url": "file:///a/delayq.whl", "archive_info": {}}', "pip install 'delayq[lake] @ file:///a/delayq.whl'"),
        (
            '{"url": "https://example.org/delayq", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}}',
            "pip install 'delayq[lake] @ git+https://example.org/delayq@1a2b'",
        ),
    ],
    ids=["index", "file", "repository"],
)
def test_installed_package_is_installed_from_where_it_came(
    origin: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: origin))
    assert extras.install("lake", tmp_path) == command


def test_folder_on_the_path_has_no_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)
    assert extras.install("lake", tmp_path) == "pip install 'delayq[lake]'"
