"""Takes the pictures of the dashboard that the README shows: ``python -m tests.harness.web.pictures``."""

from __future__ import annotations

import sys
from contextlib import closing

from delayq.web import app
from tests.harness.servers import RedisServer, server_binaries
from tests.harness.tree import ROOT
from tests.harness.web.scene import Scene
from tests.harness.web.serving import chromium, opened, served

FOLDER = ROOT / "docs" / "images"
PICTURES = {"overview": "/", "queue": "/shop/queues/emails"}
WIDTH = 1200


def main() -> None:
    """Play a scene on its own server, and take a picture of each page."""
    path = chromium()
    if path is None:
        sys.exit("no chromium on the path: on Debian, apt install chromium")
    FOLDER.mkdir(exist_ok=True)
    with closing(RedisServer(list(server_binaries().values())[-1])) as server:
        Scene(server.url).play()
        with served(app({"shop": server.url})) as base, opened(path) as browser:
            page = browser.new_page(color_scheme="light", viewport={"width": WIDTH, "height": 400})
            for name, where in PICTURES.items():
                page.goto(base + where)
                page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


if __name__ == "__main__":
    main()
