"""The site: Sphinx makes it from the pages of this folder. `make docs` builds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from delayq.cli import main
from sphinx.application import Sphinx

import delayq

project = "delayq"
author = "delayq contributors"
copyright = "delayq contributors"  # noqa: A001  # Sphinx's name
release = version = delayq.__version__

extensions = ["sphinx_copybutton", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"  # docstrings write `name`
highlight_language = "none"  # of blocks that name none, such as ACLs
myst_heading_anchors = 4  # links to headings, as GitHub writes them

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True  # "Attributes:" do not describe once more what is documented beside the fields

html_theme = "furo"
html_static_path = ["site"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).with_name("site") / "scorer.js")
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
html_title = "delayq"
html_favicon = "../delayq/web/static/icon.svg"

CLI_PAGE = "reference/cli"
OF_ROOT = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security-policy": "SECURITY.md"}
"""Pages that the site takes from the root of the repository."""
OF_SOURCES = "In a checkout, this page is not complete: `make docs` builds the whole site in `build/site`.\n\n"
"""What the pages of the reference say where they are read as files; the site does not say it."""


def command_line(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    """Yield the Markdown of a command and of those below it: a heading, and what `--help` prints."""
    context = click.Context(command, parent, info_name=name, max_content_width=100)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from command_line(below, context, each)


def on_site(link: re.Match[str]) -> str:
    """Return a link from the root of the repository as the site has it; only its text if the site has no such page."""
    text, target = link.groups()
    for name, file in OF_ROOT.items():
        if target.startswith(file):
            return f"[{text}]({name}.md{target.removeprefix(file)})"
    page = re.fullmatch(r"docs/(.+\.md(?:#.*)?)", target)
    return f"[{text}]({page[1]})" if page else text


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Complete the pages of the reference, and those of the root."""
    source[0] = source[0].replace(OF_SOURCES, "")
    if page in OF_ROOT:
        text = (Path(app.srcdir).parent / OF_ROOT[page]).read_text("utf-8")
        source[0] = re.sub(r"\[([^]]*)\]\((?![a-z]+:|#)([^)]*)\)", on_site, text)
    for name, file in OF_ROOT.items():
        source[0] = source[0].replace(f"](../{file}", f"]({name}.md")
    if page == CLI_PAGE:
        source[0] += "\n".join(["", *command_line(main, None, "delayq")])


def setup(app: Sphinx) -> None:
    """Connect what Sphinx calls."""
    app.connect("source-read", complete)
