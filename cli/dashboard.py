"""dashboard: queues in a browser."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from delayq import signals
from delayq.errors import InvalidInput
from delayq.http_connections import host_names, is_loopback
from delayq.model.credentials import is_unfit_name
from delayq.model.extras import install

from .logging import LogFormat, LogLevel, configure
from .options import LIKE_URL, NamedServer, command, log_options, prefix_option, servers_option
from .output import note

if TYPE_CHECKING:
    from delayq.web import Login

T = TypeVar("T")


def _root_path(_: click.Context, __: click.Parameter, value: str) -> str:
    if is_unfit_name(value):
        raise click.BadParameter(f"it {LIKE_URL}: give a path, such as /delayq")
    if not re.fullmatch(r"[A-Za-z0-9._~/:@,+=-]*", value) or {".", ".."} & set(value.split("/")):
        raise click.BadParameter(f"{value!r} has a character other than letters, digits and . _ ~ / : @ , + = -")
    path = value.strip("/")
    return f"/{path}" if path else ""


def _behind(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what is not the address of a proxy, and what is everybody's: strangers could choose their own address."""
    for each in () if value is None else value.split(","):
        try:
            network = ipaddress.ip_network(each.strip())
        except ValueError:
            network = None
        if network is None or network.prefixlen == 0:
            shown = f"it {LIKE_URL}" if is_unfit_name(each) else f"{each.strip()!r} is not the address of a proxy"
            raise click.BadParameter(f"{shown}: give one, or its network, such as 10.0.0.0/8")
    return value


def _refuse_empty(ctx: click.Context, option: click.Parameter, value: T) -> T:
    """Refuse a variable that is set but empty, as by a secret that does not exist: it must not open the dashboard."""
    name = str(option.envvar)
    is_argument = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    if not is_argument and name in os.environ and not os.environ[name].strip():
        raise click.UsageError(f"{name} is empty: give it a value, or unset it")
    return value


@command(
    """
    delayq send emails hello --delay 1m
    delayq dashboard --port 8700
    """,
    "Show queues in a browser.",
)
@click.option("--port", default=8700, type=click.IntRange(0, 65535), help="The port; 0 picks a free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    help="The address to listen on; any but the default requires a login.",
)
@servers_option
@prefix_option
@click.option("--read-only", is_flag=True, help="Allow no changes.")
@click.option(
    "--token",
    envvar="DELAYQ_DASHBOARD_TOKEN",
    show_envvar=True,
    callback=_refuse_empty,
    metavar="TEXT",
    help="One secret for all users. The environment variable is safer: other users of this machine can see arguments.",
)
@click.option(
    "--users-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A file of users and passwords: the lines that --new-user prints.",
)
@click.option("--new-user", metavar="NAME", help="Ask for a password, print a line for the users file, and exit.")
@click.option(
    "--role",
    default="operator",
    type=click.Choice(["operator", "viewer"]),
    help="The role of the new user or of the token; a viewer cannot change anything.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name that browsers may use; repeatable. Default: the loopback names on a loopback address, else any.",
)
@click.option(
    "--redact",
    multiple=True,
    envvar="DELAYQ_DASHBOARD_REDACT",
    show_envvar=True,
    callback=_refuse_empty,
    metavar="NAME",
    help="Hide the values of this payload field and this header; repeatable. In the environment, separate names "
    "with spaces.",
)
@click.option(
    "--behind",
    metavar="ADDRESS",
    callback=_behind,
    help="The address or network of the proxy in front; its X-Forwarded-… headers are trusted.",
)
@click.option(
    "--root-path", default="", show_default=False, metavar="PATH", callback=_root_path,
    help="The path under which the proxy serves the dashboard.",
)  # fmt: skip
@log_options
def dashboard(
    port: int, host: str, places: Sequence[NamedServer], prefix: str, read_only: bool, token: str | None,
    users_file: Path | None, new_user: str | None, role: str, hosts: Sequence[str], redact: Sequence[str],
    behind: str | None, root_path: str,
    log_format: LogFormat, log_level: LogLevel,
) -> int:  # fmt: skip
    """Serve the dashboard, which shows all queues of one or more servers live, until SIGTERM or Ctrl-C.

    \b
    delayq dashboard --new-user ann >> users.txt
    delayq dashboard --host 0.0.0.0 --users-file users.txt

    Passwords are sent unencrypted: if browsers connect from other machines, put a proxy with TLS in front and give its
    address as --behind. Each action is logged with the user's name.
    """  # noqa: D301  # click wants the character
    configure(log_format, log_level)
    if click.get_current_context().get_parameter_source("token") is ParameterSource.COMMANDLINE:
        note("other users of this machine can see --token in the list of processes: set DELAYQ_DASHBOARD_TOKEN instead")
    web = _web()
    if new_user is not None:
        click.echo(web.user_line(new_user, role, _password()))
        return 0
    login = _login(web, token, users_file, role)
    if login is None and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} lets other machines connect, so users must log in: give --users-file, or a --token of at "
            "least 16 characters"
        )
    app = web.app(
        _servers(places), prefix=prefix, read_only=read_only, login=login, hosts=host_names(host, hosts), redact=redact
    )
    _serve(app, _listening(host, port), behind, root_path)
    return 0


def _web() -> Any:
    try:
        from delayq import web  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise InvalidInput(f"the dashboard needs {error.name}: {install('dashboard')}") from error
    return web


def _login(web: Any, token: str | None, users_file: Path | None, role: str) -> Login | None:
    if token is not None and users_file is not None:
        raise click.UsageError("give either --token or --users-file, not both")
    if users_file is not None:
        login: Login = web.Users.read(users_file)
        return login
    return None if token is None else web.Token(token, role)


def _servers(places: Sequence[NamedServer]) -> Any:
    """Return the arguments of `delayq.web.app`."""
    named = {each.name: each.url for each in places if each.name is not None}
    return named or [each.url for each in places] or None


def _password() -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n") if sys.stdin else ""
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _listening(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        remedy = "choose another --port" if port else "choose another --host"
        raise click.ClickException(f"cannot listen on {host}:{port} ({error.strerror}): {remedy}") from error


def _serve(app: Any, listening: socket.socket, behind: str | None, root_path: str) -> None:
    from delayq.web.http_server import Server  # noqa: PLC0415  # an extra

    with listening:
        address, port = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        note(f"the dashboard is at http://{shown}:{port}{root_path}/ (Ctrl-C stops it)")
        with signals.ignored((signal.SIGINT, signal.SIGTERM)):  # uvicorn shuts down, and then raises the signal again
            Server(app, behind=behind, root_path=root_path).run(sockets=[listening])
