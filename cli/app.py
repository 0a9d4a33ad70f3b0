"""The ``delayq`` command: the list of commands, and how it reports their errors."""

from __future__ import annotations

import codecs
import errno
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from operator import eq
from typing import Any, NoReturn

import click

import delayq
from delayq.errors import (
    ClientTooOld,
    DelayqError,
    FormatTooNew,
    HandlerMissing,
    InvalidInput,
    LoginRefused,
    ServerTooOld,
)
from delayq.model.actions import ACTIONS
from delayq.model.credentials import may_hold_password
from delayq.model.other_libraries import COMMANDS, OPTIONS
from delayq.model.server_url import redact
from delayq.model.show import nearest

from .late_logging import configure_late
from .options import ExampledGroup, example, foreign_option, refuse_empty
from .output import note

DONE, FAILED, USAGE = 0, 1, 2
BAD_INPUT = (InvalidInput, HandlerMissing, LoginRefused, ServerTooOld, FormatTooNew, ClientTooOld)

LEAST = 24
"""Characters that an error quotes at least, if it cuts a value."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that has no room for the output."""

COMPLETES = "_DELAYQ_COMPLETE"
"""The variable that tells click that a shell asks for completions."""

SECTIONS = {
    "Get started": {"demo": "demo.command", "init": "init"},
    "Messages": {
        "send": "send.command",
        "peek": "show",
        "show": "show",
        "why": "why",
        "result": "result",
        "reschedule": "manage",
        **{each.name: "manage" for each in ACTIONS.values() if each.command},
        "cancel": "manage",
        "consume": "consume.command",
        "check": "check",
        "dead": "dead",
        "cron": "cron",
    },
    "Topics": {"topic": "topic.command"},
    "Queues": {
        "stats": "stats",
        "top": "top.command",
        "consumers": "consumers",
        "exporter": "exporter",
        "dashboard": "dashboard",
        "configure": "configure",
        "pause": "manage",
        "resume": "manage",
        "purge": "manage",
        "queue": "queue",
        "doctor": "doctor",
        "convert": "convert",
        "bench": "bench",
        "plan": "plan",
    },
    "Beyond Redis": {"relay": "relay", "lake": "lake.command", "pipeline": "pipeline"},
    "Beyond Python": {"protocol": "protocol"},
    "Your shell": {"completion": "completion"},
}
"""Commands as the help groups them, each with the module that defines a function of that name, or makes it."""

MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}


class Commands(click.Group):
    """Imports a command when it is needed, and turns errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in MODULES:
            return None
        module = importlib.import_module(f".{MODULES[cmd_name]}", __package__)
        command: click.Command = getattr(module, cmd_name, None) or module.MADE[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]  # click empties the list if the name looks like an option
        if name in COMMANDS and name not in MODULES:
            raise click.UsageError(f"No such command {name!r}{_said(COMMANDS[name])}", ctx)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if close := nearest(name, MODULES):
                raise click.UsageError(f"{error.message} Did you mean {close!r}?", ctx) from error
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = {word: meant for word, meant in OPTIONS.items() if "--" not in meant}  # this has no options
            raise foreign_option(error, ctx, words) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            width = formatter.width - 6 - max(map(len, MODULES))
            rows = [(name, command.get_short_help_str(width)) for name, command in commands if command]
            with formatter.section(title):
                formatter.write_dl(rows, col_spacing=max(map(len, MODULES)) - max(map(len, names)) + 2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args and "args" not in kwargs:  # this process is the command, not a program that calls it
            # No imported module is garbage. Searching them when Python ends takes a sixth of a short command's time.
            gc.freeze()
        return super().__call__(*args, **kwargs)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:  # exits, as click's own does
        kwargs["standalone_mode"] = False
        _escape_what_cannot_be_shown()
        fail = partial(_fail, words=kwargs.get("args") or (args[0] if args else sys.argv[1:]))
        if COMPLETES in os.environ:
            importlib.import_module(".completion", __package__)  # puts delayq's bash completion in place of click's
        try:
            sys.exit(super().main(*args, **kwargs) or DONE)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
            sys.exit(USAGE)
        except click.UsageError as error:
            where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            fail((_misplaced(error) or error.format_message()) + where, USAGE)
        except click.ClickException as error:
            fail(error.format_message(), error.exit_code)
        except click.Abort:
            fail("aborted", FAILED)
        except BAD_INPUT as error:
            fail(str(error), USAGE)
        except DelayqError as error:
            fail(str(error) or type(error).__name__, FAILED)
        except OSError as error:
            _fail_to_write(error)
        except Exception as error:  # noqa: BLE001  # raised again unless it is redis-py's
            fail(_translate(error), FAILED)


def _said(meant: str) -> str:
    return f": did you mean 'delayq {meant}'?" if meant in MODULES else f": {meant}"


def _translate(error: Exception) -> str:
    """Return the text for an error of redis-py; raise any other one."""
    from redis.exceptions import RedisError  # noqa: PLC0415  # both are needed only on an error

    from delayq.transport.server_check import translate  # noqa: PLC0415

    if not isinstance(error, RedisError):
        raise error
    return str(translate(error))


def _escape_what_cannot_be_shown() -> None:
    """Let output in a locale without UTF-8 show other characters as escapes, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _fail_to_write(error: OSError) -> NoReturn:
    if error.errno not in FULL:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest of the output would fail again at exit
    _fail(f"cannot write the output: {error.strerror}", FAILED)


def _fail(text: str, code: int, words: Sequence[str] = ()) -> NoReturn:
    note(f"delayq: {' '.join(_hidden(text, words).split())}")
    sys.exit(code)


def _hidden(text: str, words: Sequence[str]) -> str:
    """Return an error without the passwords of the command line that it quotes, such as in a URL given as a number."""
    parts = {part for word in words for part in (word, word.partition("=")[2])}
    if not any(map(_is_secret, parts)):
        return text
    for part in sorted(filter(None, parts), key=len, reverse=True):
        if "@" in part or _is_secret(part):  # an @: a password with a space is several words without quotes
            for form in (part, repr(part)[1:-1]):
                text = _without(text, form, redact(part))
    return text


def _without(text: str, secret: str, shown: str) -> str:
    """Replace what a text shows of a secret, which may be cut."""
    before, *cuts = text.split(secret[:LEAST])
    rest = secret[LEAST:]
    kept = (cut[sum(1 for _ in takewhile(bool, map(eq, cut, rest))) :] for cut in cuts)
    return shown.join([before, *kept])


def _is_secret(word: str) -> bool:
    return may_hold_password(word) or re.search(r":[^/]*@", word) is not None


def _misplaced(error: click.UsageError) -> str:
    """Return the message for a command that exists in another place than where it was asked for; "" if it does not.

    Names that only look alike, as click suggests them, may do something else.
    """
    match = re.match(r"No such command '([^']+)'\.", error.message)
    if match is None or error.ctx is None:
        return ""
    name, here = match[1], error.ctx
    found = _with_command(here, here.command_path, name)
    if not found and here.parent is not None and name in MODULES:
        found = [f"{here.find_root().command_path} {name}"]
    return f"{match[0]} Did you mean {' or '.join(map(repr, found))}?" if found else ""


def _with_command(ctx: click.Context, path: str, name: str) -> list[str]:
    """Return the paths of the commands with a name in the groups below a group."""
    group, found = ctx.command, list[str]()
    if not isinstance(group, click.Group):
        return found
    for each in group.list_commands(ctx):
        below = group.get_command(ctx, each)
        if isinstance(below, click.Group):
            inner = click.Context(below, ctx)
            if below.get_command(inner, name) is not None:
                found.append(f"{path} {each} {name}")
            elif type(below) is ExampledGroup:  # those of the pipeline import Spark
                found += _with_command(inner, f"{path} {each}", name)
    return found


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog=example("delayq demo"),
)
@click.version_option(delayq.__version__, prog_name="delayq")
@click.option("--url", metavar="URL", callback=refuse_empty, help="The server; also accepted after the command.")
@click.option("--prefix", metavar="TEXT", help="The prefix of all keys; also accepted after the command.")
def main(url: str | None, prefix: str | None) -> None:  # noqa: ARG001  # the commands' own options look for them
    """A message queue on Redis that delivers each message on time and loses none.

    \b
    send ─► pending ─► ready ─► unack ── ack ──► done
               ▲                 │
               │                 ├─ failed ──► retry ─► unack …
               └─ requeue ◄─ dead ◄─ rejected, or no retry left

    Commands that need a server use --url, before or after the command's name, or else DELAYQ_URL, or else the embedded
    store in ./.delayq. Commands that send, consume, configure or pause create the store; the others need an existing
    one. Exit codes: 0 done, 1 failed, 2 bad usage or input.
    """  # noqa: D301  # click wants the character
    configure_late()
