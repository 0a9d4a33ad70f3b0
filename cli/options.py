"""Options that commands share, as decorators."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from delayq.errors import InvalidInput
from delayq.model.credentials import is_unfit_name
from delayq.model.cron_expression import MAX_INTERVAL_S
from delayq.model.envelope import check_header_names
from delayq.model.other_libraries import SEND
from delayq.model.placement import PURGEABLE
from delayq.model.rate_text import per_second
from delayq.model.result import keep_ms
from delayq.model.server_url import chosen_url
from delayq.model.units import MAX_LEASE_MS, parse_age, parse_duration, parse_moment, timestamp_ms
from delayq.model.validation import MOST_LISTED

from . import candidates
from .formats import parse_position, parse_size

if TYPE_CHECKING:
    from .connection import ServerOptions

    ParamType: TypeAlias = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only from click 8.4

COMMON = ("as_json", "url", "prefix", "help")

MAKE_A_STORE = {
    *("send", "consume", "configure", "pause", "bench", "cron add", "cron load", "topic publish", "topic group create"),
    *("demo", "relay", "pipeline schedule", "pipeline hydrate", "pipeline restore", "lake hydrate"),
}
"""Commands that create the embedded store if it does not exist; all others need an existing one."""

T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Function], Function]


class Parsed(ParamType):
    """A parameter that one of delayq's functions parses."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{text!r} is not NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, value = _pair(text)
    check_header_names([name])
    return name, value


def _longest_run(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise InvalidInput(f"{text!r} leaves a handler no time: leave the option out for no limit")
    if seconds * 1000 > MAX_LEASE_MS:
        raise InvalidInput(f"{text!r} is more than 1d: leave the option out for no limit")
    return seconds


def _memory(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise InvalidInput(f"{text!r} leaves a process no memory: leave the option out for no limit")
    return size


def _jitter(text: str) -> float:
    seconds = parse_duration(text)
    if seconds > MAX_INTERVAL_S:
        raise InvalidInput(f"{text!r} is more than 366d: give a shorter time")
    return seconds


def _slot(text: str) -> dt.datetime:
    moment = parse_moment(text)
    try:
        timestamp_ms(moment)
    except InvalidInput as error:
        raise InvalidInput(
            f"{text!r} is not between the years 1970 and 9999: leave the option out for no bound"
        ) from error
    return moment


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidInput(f"{text!r} is not a regular expression: {error}") from error


def _kept(text: str) -> float:
    seconds = parse_duration(text)
    keep_ms(seconds)  # checks it
    return seconds


KEPT = Parsed("duration", _kept)
DURATION = Parsed("duration", parse_duration)
LONGEST_RUN = Parsed("duration", _longest_run)
MEMORY = Parsed("size", _memory)
JITTER = Parsed("duration", _jitter)
AGE = Parsed("age", parse_age)
RATE = Parsed("rate", per_second)
PATTERN = Parsed("pattern", _pattern)
MOMENT = Parsed("moment", parse_moment)
SLOT = Parsed("moment", _slot)
POSITION = Parsed("position", parse_position)
PAIR = Parsed("pair", _pair)
HEADER = Parsed("pair", _header)


NAMED = re.compile("QUEUE|TOPIC|TARGET|FOLDER")
"""In the metavar of an argument that is the name of a queue, a topic or a folder: it is shown before it is used."""


LIKE_URL = "looks like a URL, a connection string or user:password@host"


def foreign_option(error: click.NoSuchOption, ctx: click.Context, words: Mapping[str, str]) -> click.NoSuchOption:
    """Return the error for an option of another tool, with what it is here; the same error for any other one."""
    name, meant = error.option_name, words.get(error.option_name)
    if meant is None:
        return error
    remedy = f". Did you mean {meant!r}?" if re.fullmatch(r"--[\w-]+", meant) else f": {meant}"
    return click.NoSuchOption(name, f"No such option {name!r}{remedy}", ctx=ctx)


class ExampledCommand(click.Command):
    """A command whose help lists its own options before the common ones, and that suggests options of other tools."""

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere
        for each in self.params:
            if isinstance(each, click.Option) and each.show_default is None:
                each.show_default = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = {f"--{word.replace('_', '-')}": f"--{meant.replace('_', '-')}" for word, meant in SEND.items()}
            known = {option for param in self.params for option in param.opts}
            words = {word: meant for word, meant in words.items() if meant in known}
            raise foreign_option(error, ctx, self._elsewhere or words) from None
        except click.BadParameter as error:
            param = error.param
            if param and ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
                error.param_hint = repr(param.envvar)
            raise
        self._refuse_urls(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # about options together: their names are in it
            named = set(re.findall(r"--[\w-]+", error.message))
            variables = [
                f" ({each.envvar} sets {max(each.opts, key=len)})"
                for each in self.params
                if ctx.get_parameter_source(each.name or "") is ParameterSource.ENVIRONMENT
                and not named.isdisjoint(each.opts)
            ]
            if not variables:
                raise
            raise click.UsageError("".join([error.message, *variables]), error.ctx) from error

    def _refuse_urls(self, ctx: click.Context) -> None:
        """Refuse a URL as a name: it may hold a password."""
        for param in self.params:
            if isinstance(param, click.Argument) and NAMED.search(str(param.metavar)):
                value = ctx.params.get(param.name or "") or ()
                if any(is_unfit_name(str(each)) for each in (value if isinstance(value, tuple) else [value])):
                    raise click.UsageError(f"{param.metavar} {LIKE_URL}: give a server as --url", ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return sorted(super().get_params(ctx), key=lambda each: COMMON.index(each.name) if each.name in COMMON else -1)


class ExampledGroup(click.Group):
    """A group of commands whose help ends in examples."""

    def command(  # type: ignore[override]  # what each of its commands has
        self, lines: str, short: str, name: str | None = None
    ) -> Callable[[Function], click.Command]:
        """Make a function a command of the group, as the function `command` does."""
        return super().command(name, cls=ExampledCommand, epilog=example(lines), short_help=short)


def command(
    lines: str, short: str, name: str | None = None, elsewhere: Mapping[str, str] | None = None
) -> Callable[[Function], click.Command]:
    """Make a function a command, described as `short` in lists, whose help ends in an example that runs as printed.

    Args:
        elsewhere: options of other tools, and what each is here; None for the options of a message.
    """
    return click.command(name, cls=ExampledCommand, epilog=example(lines), short_help=short, elsewhere=elsewhere)


def command_group(lines: str, short: str) -> Callable[[Function], ExampledGroup]:
    """Make a function a group of commands, with help as that of `command`."""
    return click.group(cls=ExampledGroup, epilog=example(lines), short_help=short)


def example(lines: str) -> str:
    """Return the end of a help text."""
    return f"\b\nExample:\n{textwrap.indent(inspect.cleandoc(lines), '  ')}"


def server_options(function: Function) -> Function:
    """--url and --prefix; the function gets a `Server` as `server`, closed when it returns."""

    @click.option(
        "--url",
        envvar="DELAYQ_URL",
        show_envvar=True,
        metavar="URL",
        callback=_url,
        help="redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// or embedded:///FOLDER. "
        "Default: the embedded store in ./.delayq.",
    )
    @prefix_option
    @functools.wraps(function)
    def with_server(*args: Any, url: str | None, prefix: str, **kwargs: Any) -> Any:
        from .connection import ServerOptions  # noqa: PLC0415  # as in `candidates`

        words = click.get_current_context().command_path.split()[1:]
        with ServerOptions(url, prefix, makes_store=" ".join(words) in MAKE_A_STORE) as server:
            return function(*args, server=server, **kwargs)

    return with_server


def refuse_empty(_ctx: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    """Refuse an empty URL."""
    if url == "":  # such as "$REDIS_URL" of an unset variable, which does not mean the embedded store
        raise click.BadParameter("the URL is empty: leave the option out for the embedded store")
    return url


def _url(ctx: click.Context, option: click.Parameter, url: str | None) -> str | None:
    return chosen_url(refuse_empty(ctx, option, _given_before(ctx, option, "url", url)))


def _prefix(ctx: click.Context, option: click.Parameter, prefix: str) -> str:
    chosen = _given_before(ctx, option, "prefix", prefix)
    if is_unfit_name(chosen):
        raise click.BadParameter(f"it {LIKE_URL}: give a server as --url")
    return chosen


def _given_before(ctx: click.Context, option: click.Parameter, name: str, value: T) -> T:
    """Return the value of an option before the command, if it was not given after the command too."""
    before: T | None = ctx.find_root().params.get(name)
    if before is None or ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
        return value
    ctx.set_parameter_source(option.name or "", ParameterSource.COMMANDLINE)
    return before


prefix_option: Decorator = click.option(
    "--prefix", default="delayq", callback=_prefix, help="The prefix of all keys in Redis."
)


def added(*options: Decorator) -> Decorator:
    """Return a decorator that adds these options to a command, in this order."""
    return lambda function: functools.reduce(lambda made, option: option(made), reversed(options), function)


log_options = added(
    click.option("--log-format", default="console", type=click.Choice(["console", "json"]), help="On stderr."),
    click.option(
        "--log-level",
        envvar="DELAYQ_LOG_LEVEL",
        show_envvar=True,
        default="info",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        help="Log lines of this level and above.",
    ),
)


def queue_argument(function: Function) -> Function:
    """QUEUE and the server's options; the function gets the `Queue` as `queue`."""

    @click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
    @server_options
    @functools.wraps(function)
    def with_queue(*args: Any, server: ServerOptions, name: str, **kwargs: Any) -> Any:
        return function(*args, queue=server.queue(name), **kwargs)

    return with_queue


def new_queue_argument(function: Function) -> Function:
    """As `queue_argument`, with --create: without it, a new name that is much like another one is questioned."""

    @click.argument("name", metavar="QUEUE", shell_complete=candidates.queues)
    @create_option
    @server_options
    @functools.wraps(function)
    def with_queue(*args: Any, server: ServerOptions, name: str, create: bool, **kwargs: Any) -> Any:
        queue = server.queue(name)
        server.note_slip(name, create)
        return function(*args, queue=queue, **kwargs)

    return with_queue


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; a list has one document per line.")

long_option = click.option("--long", is_flag=True, help="Show dates in addition to relative times.")

create_option = click.option(
    "--create", is_flag=True, help="Do not warn if the name of a new QUEUE is much like another one."
)

retries_option = click.option(
    "--max-retries",
    type=click.IntRange(0, 1_000_000),
    help="Deliveries after the first one. Default: the setting of delayq configure, else 5, which take about 20 "
    "minutes with the default backoff.",
)

task_option = click.option(
    "--task", metavar="NAME", help="Run this task of the queue; PAYLOAD is a JSON object of its arguments."
)

results_option = click.option(
    "--results",
    type=KEPT,
    metavar="TIME",
    help="Keep the result of the --task for this long after its end; delayq result prints it.",
)

header_option = click.option(
    "--header", "-H", "headers", type=HEADER, multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)


def kind_option(text: str, default: str | None = None) -> Decorator:
    """--as, the kind of a payload; the function gets it as `kind`."""
    kinds = click.Choice(["auto", "json", "text", "raw"])
    return click.option("--as", "kind", type=kinds, default=default, show_default=False, help=text)


timeout_option = click.option(
    "--timeout",
    type=LONGEST_RUN,
    metavar="TIME",
    help="Time limit for each run of the handler; overrides the consumer's limit.",
)

id_argument = click.argument("message_id", metavar="ID", shell_complete=candidates.ids)

ids_argument = click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=candidates.ids)

limit_option = click.option("--limit", default=10, type=click.IntRange(1, MOST_LISTED), help="List at most this many.")

states_option = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(PURGEABLE),
    help="Only from this state; repeatable. Default: all.",
)

delay_option: Decorator = click.option(
    "--delay",
    type=DURATION,
    metavar="TIME",
    help="Due after this time: 500ms, 10s, 1h30m, 2d; a plain number is seconds.",
)


due_options = added(
    delay_option,
    click.option("--at", type=MOMENT, metavar="ISO8601", help="Due at this time; include the time zone."),
)

dry_run_option = click.option("--dry-run", is_flag=True, help="Change nothing; only count.")


def yes_option(question: str | Callable[..., str]) -> Decorator:
    """--yes; without it, the command asks a question first, unless --dry-run was given.

    Args:
        question: a text that may use an argument, as in ``{queue.name}``, or a function of all arguments.
    """

    def decorate(function: Function) -> Function:
        @click.option("--yes", "-y", is_flag=True, help="Do not ask first.")
        @functools.wraps(function)
        def asked(*args: Any, yes: bool, **kwargs: Any) -> Any:
            if not (yes or kwargs.get("dry_run")):
                _confirm(question.format(**kwargs) if isinstance(question, str) else question(**kwargs))
            return function(*args, **kwargs)

        return asked

    return decorate


def _confirm(question: str) -> None:
    if not _can_ask():
        raise click.UsageError(f"{question} There is no terminal to ask on: give --yes to confirm")
    click.confirm(question, abort=True, err=True)


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def check_terminal(remedy: str) -> None:
    """Refuse to run without a terminal."""
    if not _can_ask():
        raise click.UsageError(f"there is no terminal: {remedy}")


def one_of(delay: float | None, at: dt.datetime | None) -> None:
    """Refuse --delay with --at."""
    if delay is not None and at is not None:
        raise click.UsageError("give either --delay or --at, not both")


def in_options(text: str, given: Mapping[str, object]) -> str:
    """Return an error with the names of options, such as --expires-in, in place of the arguments of functions."""
    names = "|".join({*given, "id", "on_conflict"})
    return re.sub(rf"\b({names})=", lambda match: f"--{match[1].replace('_', '-')} ", text).rstrip()


class NamedServer(NamedTuple):
    """A server from the command line: its name, or None, and its URL."""

    name: str | None
    url: str


def _places(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> list[NamedServer]:
    before = _given_before(ctx, option, "url", None)
    given = given if before is None else [before]
    for each in given:
        refuse_empty(ctx, option, each)
    if not given:
        chosen_url(None)  # refuses a DELAYQ_URL that is empty
    matches = [_NAMED.fullmatch(each) for each in given]
    if any(matches) and not all(matches):
        raise click.BadParameter("some servers have a name and others do not: give --url NAME=URL for each")
    places = [
        NamedServer(match["name"], match["url"]) if match else NamedServer(None, each)
        for each, match in zip(given, matches, strict=True)
    ]
    names = [place.name for place in places if place.name is not None]
    if len(set(names)) < len(names):
        raise click.BadParameter("two servers have the same name: give each a different name")
    return places


_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<url>[A-Za-z0-9+]+://.*)", re.DOTALL)

servers_option = click.option(
    "--url",
    "places",
    multiple=True,
    envvar="DELAYQ_URL",
    show_envvar=True,
    metavar="[NAME=]URL",
    callback=_places,
    help="A server, optionally with a name; repeatable. Default: the embedded store in ./.delayq.",
)
"""The function gets `places`, a list of `NamedServer`, which is empty if none was given."""
