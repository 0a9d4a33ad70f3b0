"""Write the list of the dashboard's routes into its page: ``python -m tools.routes``."""

from __future__ import annotations

import re
from pathlib import Path

from delayq.web import app
from delayq.web.routes import Page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security.md"
BEGIN, END = "<!-- made by python -m tools.routes -->\n", "<!-- end of the list -->\n"


def table() -> str:
    """Return the list as a Markdown table: the method, the path and the right of each route, by path."""
    rows = []
    for route in app("redis://127.0.0.1:1").routes:
        if not isinstance(route, Page):
            raise TypeError(f"expected a route with a right, got {route!r}")
        rows.append((re.sub(r":\w+}", "}", route.path), route.method, route.right))
    lines = [
        f"| {method} | `{path}` | {right.name.lower()} |"
        for path, method, right in sorted(rows, key=lambda row: row[:2])
    ]
    return "\n".join(["| method | path | right |", "|---|---|---|", *lines, ""])


def main() -> None:
    """Replace the list in the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
