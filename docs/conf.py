"""The site: Sphinx makes it from the pages of this folder. `make docs` builds it."""

from __future__ import annotations

import builtins
import html
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import click
import redis
import redis.asyncio as aioredis
from delayq.cli import main
from docutils import nodes
from pygments.lexer import RegexLexer
from pygments.token import Keyword, Name, Operator, String, Text, Token
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import delayq.aio
import delayq.aio.topic
import delayq.queue
import delayq.topic

project = "delayq"
author = "delayq contributors"
copyright = "delayq contributors"  # noqa: A001  # Sphinx's name
release = version = delayq.__version__

extensions = ["sphinx_copybutton", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"  # docstrings write `name`
highlight_language = "none"  # of blocks that name none, such as diagrams
myst_heading_anchors = 4  # links to headings, as GitHub writes them

autodoc_default_options = {"members": True, "exclude-members": "execute"}  # which takes what may change any day
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True  # "Attributes:" do not describe once more what is documented beside the fields

html_theme = "furo"
html_static_path = ["site"]
html_css_files = ["site.css"]
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


def complete_docstring(_app: Sphinx, what: str, name: str, _of: object, _options: object, lines: list[str]) -> None:
    """List the options of `send`, which its docstring leaves to `Outgoing`; give attributes no words as their types.

    Napoleon takes what is before a colon for the type of an attribute.
    """
    if re.fullmatch(r"delayq\.(aio\.)?Queue\.send", name):
        options = inspect.cleandoc(delayq.Outgoing.__doc__ or "").partition("Args:\n")[2].splitlines()
        at = lines.index("Args:") + 1
        lines[at:at] = options
    if what in {"attribute", "property", "data"} and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


# There they are strings, so that an import of delayq is faster.
delayq.queue.Client = delayq.topic.Client = redis.Redis | redis.RedisCluster
delayq.aio.queue.Client = delayq.aio.topic.Client = aioredis.Redis | aioredis.RedisCluster


def readable(
    _app: Sphinx, what: str, _name: str, subject: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Show values instead of the names of constants, and no constructor that only delayq calls."""
    if signature is None:
        return None
    if what == "class" and re.search(r"[(, ]_\w+:", signature):
        return "", None
    signature = re.sub(r" \| (~?msgspec\.)?UnsetType", "", signature)
    signature = re.sub(r"(=|= )(?:<factory>|(?:msgspec\.)?UNSET\b)", r"\1...", signature)
    signature = re.sub(r"(\*+)(\w+): (?:~?typing\.)?~+P\b", lambda m: f"{m[1]}{m[2]}: P.{m[2]}", signature)
    values = vars(inspect.getmodule(inspect.unwrap(subject)))  # type: ignore[arg-type]
    return re.sub(r"(?<== )[A-Z][A-Z_]+\b", lambda m: repr(values[m[0]]), signature), returns


PYTHON = "https://docs.python.org/3/library/{}.html#{}"
PAGES = {"int": "functions", "float": "functions", "bool": "functions", "object": "functions", "None": "constants"}
"""Where Python documents its built-in types that are neither in "stdtypes" nor exceptions."""


def link(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> nodes.Node | None:
    """Link a type: of delayq to where it is documented, of Python to its documentation.

    Intersphinx would need the network for each build.
    """
    name = node["reftarget"]
    module, _, last = name.rpartition(".")
    python = env.get_domain("py")
    for place in ("delayq", "delayq.types", "delayq.errors"):
        if f"{place}.{last}" in python.objects:
            return python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"{place}.{last}", node, text)
    known = getattr(builtins, name, None)
    if module.startswith("redis"):
        address = "https://redis.readthedocs.io/en/stable/connections.html"
    elif isinstance(known, type) and issubclass(known, BaseException):
        address = PYTHON.format("exceptions", name)
    elif isinstance(known, type) or name == "None":
        address = PYTHON.format(PAGES.get(name, "stdtypes"), name)
    elif module in {"asyncio", "collections.abc", "datetime", "os", "re", "types", "typing"}:
        address = PYTHON.format(module, name)
    else:
        return None
    return nodes.reference("", "", text, refuri=address, classes=["external"])


def check(app: Sphinx, error: Exception | None) -> None:
    """Fail a build whose reference shows what only a program reads, such as the address of an object."""
    signatures = re.compile(r'<dt class="sig[^>]*id="([^"]+)">(.*?)</dt>', re.DOTALL)
    for page in Path(app.outdir, "reference").glob("*.html") if error is None else ():
        for name, shown in signatures.findall(page.read_text("utf-8")):
            text = html.unescape(re.sub(r"<[^>]+>", "", shown))
            if found := re.search(r"~[a-zA-Z]|<\w+|UNSET|UnsetType|\b[A-Z]+_[A-Z_]+ *[,)]|[(, ]_\w+:", text):
                logging.getLogger(__name__).warning("%s: %s shows %s", page.name, name, found[0])


class AclLexer(RegexLexer):
    """Rules of Redis' access control lists."""

    name, aliases = "ACL", ("acl",)
    tokens: ClassVar[dict[str, list[tuple[str, Token]]]] = {
        "root": [
            (r"ACL SETUSER", Keyword),
            (r">\S+", String),
            (r"[~&%]\S+", Name.Variable),
            (r"[+-]", Operator),
            (r"[^\s+-]\S*", Name.Function),
            (r"\s+", Text),
        ]
    }


def setup(app: Sphinx) -> None:
    """Connect what Sphinx calls."""
    app.add_lexer("acl", AclLexer)
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", complete_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", readable)
    app.connect("missing-reference", link)
    app.connect("build-finished", check)
