"""A dashboard on a real uvicorn, and the installed Chromium."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.types import ASGIApp

from tests.harness.waiting import eventually


@contextmanager
def served(dashboard: ASGIApp, **options: Any) -> Iterator[str]:
    """Serve a dashboard on a free port until the block ends, with these options of uvicorn; yield its address."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(dashboard, log_config=None, timeout_graceful_shutdown=10, **options))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        assert eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def chromium() -> str | None:
    """Return the path of the browser, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def opened(path: str) -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()
