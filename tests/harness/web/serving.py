"""A dashboard on a real uvicorn, and the installed Chromium."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.types import ASGIApp

from delayq.web.http_server import Server
from tests.harness.waiting import eventually


@contextmanager
def served(application: ASGIApp, root_path: str = "", parser: str = "") -> Iterator[str]:
    """Serve an application on a free port until the block ends; yield its address.

    Args:
        root_path: the path under which a proxy serves it.
        parser: serve it with uvicorn and this parser, as other applications do, instead of the dashboard's own server.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    if parser:
        server = uvicorn.Server(uvicorn.Config(application, http=parser, root_path=root_path, log_config=None))
    else:
        server = Server(application, root_path=root_path)
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
