"""Run a story of `tests.harness.acl.roles` as the user of a role, with root in the background."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from delayq import Queue, doctor
from delayq.protocol.command import Command
from delayq.protocol.operation import unwrap
from tests.harness.pages import blocks
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT

PAGE = ROOT / "docs" / "acl.md"
LINES = {words[2]: words[3:] for block in blocks(PAGE) if (words := block.text.split())[:2] == ["ACL", "SETUSER"]}
ON_OCCASION = dict(re.findall(r"^\| (.+?) \| `(.+?)`.*\|$", PAGE.read_text(), re.MULTILINE))

HARMLESS = {"info", "config", "config|get", "client", "client|setinfo"}  # 6.2 and 7.0 name the whole command
ONLY_OF_REGISTRY = {"sadd", "srem"}  # at the top level; the log has the key only if the command itself is allowed


def tell(server: RedisServer, role: str, rights: Iterable[str], story: Callable[[Queue, Queue], None]) -> str:
    """Run a story as a user with these rights; return what failed, or what was denied and tolerated."""
    server.flush()
    with server.client(decode_responses=True) as admin, as_user(server, role) as mine, as_root(server) as root:
        admin.execute_command("ACL", "SETUSER", role, *rights)
        admin.execute_command("ACL", "LOG", "RESET")
        try:
            story(mine, root)
        except Exception as error:  # noqa: BLE001  # any error means that the story did not finish
            return repr(error)
    return ", ".join(denials(server, role))


def denials(server: RedisServer, user: str) -> list[str]:
    """Return what a user was denied, without what is harmless: the registry of names, for one, is for those who may."""
    with server.client(decode_responses=True) as admin:
        log = [each for each in admin.acl_log() if each["username"] == user and each["object"] not in HARMLESS]
    return [
        each["object"]
        for each in log
        if each["context"] != "toplevel"  # scripts do not use the registry
        or not (each["object"] in ONLY_OF_REGISTRY or re.fullmatch(r"[^{}]+:(queues|topics)", each["object"]))
    ]


def as_user(server: RedisServer, role: str, name: str = "emails", **options: Any) -> Queue:
    return Queue(name, url=f"unix://{role}:secret@{server.socket}", **options)


def as_root(server: RedisServer, name: str = "emails", **options: Any) -> Queue:
    return Queue(name, url=server.url, **options)


def grant(server: RedisServer, role: str, *more: str) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", role, *LINES[role], *more)


def contents(server: RedisServer) -> dict[bytes, bytes | None]:
    time.sleep(0.003)  # a refused send takes its payload back by letting it expire within a millisecond
    with server.client() as admin:
        dumped = {key: admin.dump(key) for key in admin.keys("*")}
        return {key: value for key, value in dumped.items() if value is not None}  # others have just expired


def act(queue: Queue, *calls: Command[Any]) -> None:
    """Run calls whose errors an operation would tolerate."""
    for result in queue._executor.run(calls):
        unwrap(result)


def shards(root: Queue) -> Any:
    return root._executor.client


def ring(root: Queue) -> None:
    """Check that the bell has rung, and silence it."""
    assert shards(root).delete(root._context.shards[0].keys.bell), "the bell has not rung"


def scar(root: Queue, message_id: str) -> None:
    """Store everything that can be known about a due message."""
    for message in root.receive():
        if message.id == message_id:
            message.reject("unwanted", error="broken")
        else:
            message.ack()


def forget_scripts(root: Queue) -> None:
    shards(root).script_flush()


def assert_whole(root: Queue) -> None:
    report = doctor.examine(root)
    assert report.healthy, report.findings
