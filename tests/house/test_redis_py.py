"""What delayq uses of redis-py that is not public: a new version may change it without saying so."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.harness.tree import modules, syntax

USED = {
    "_available_connections": ("redis.connection.ConnectionPool", "redis.asyncio.connection.ConnectionPool"),
    "_in_use_connections": ("redis.connection.ConnectionPool", "redis.asyncio.connection.ConnectionPool"),
    "_created_connections": ("redis.connection.ConnectionPool",),
    "_lock": ("redis.connection.ConnectionPool",),
    "_connect": ("redis.connection.UnixDomainSocketConnection", "redis.asyncio.connection.UnixDomainSocketConnection"),
    "_sock": ("redis.connection.AbstractConnection",),
    "_writer": ("redis.asyncio.connection.AbstractConnection",),
    "_parser": ("redis.connection.AbstractConnection", "redis.asyncio.connection.AbstractConnection"),
    "_free": ("redis.asyncio.cluster.ClusterNode",),
    "_initialize": ("redis.asyncio.cluster.RedisCluster",),
    "_retries": ("redis.retry.AbstractRetry", "redis.asyncio.retry.Retry"),
    "_backoff": ("redis.retry.AbstractRetry", "redis.asyncio.retry.Retry"),
    "_supported_errors": ("redis.retry.AbstractRetry", "redis.asyncio.retry.Retry"),
}
"""Private names that `delayq.transport` reads, sets, calls or overrides, and classes of which at least one has them."""

NOT_REDIS = {"_buffer", "_executor"}  # of asyncio.StreamReader; of delayq's own queues


def private(name: str) -> bool:
    return re.match(r"_[a-z]", name) is not None


def transport() -> Iterator[str]:
    return (name for name in modules() if name.startswith("delayq.transport"))


def looked_up() -> set[str]:
    """Private names that the modules use and do not define: attributes, and names given to `getattr` and `hasattr`."""
    used, own = set(NOT_REDIS), set[str]()
    for module in transport():
        for node in ast.walk(syntax(module)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                own.add(node.attr)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Name):
                own.add(node.id)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"}:
                used |= {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
    return {name for name in used - NOT_REDIS if private(name)} - own


def overridden() -> set[str]:
    """Private names of redis-py's classes that delayq's subclasses have as well."""
    found = set()
    for module in transport():
        for cls in vars(importlib.import_module(module)).values():
            if not inspect.isclass(cls) or cls.__module__ != module:
                continue
            theirs = "".join(inspect.getsource(each) for each in cls.__mro__ if each.__module__.startswith("redis."))
            ours = {*vars(cls), *re.findall(r"self\.(_\w+)", inspect.getsource(cls))}
            found |= {name for name in ours if private(name) and re.search(rf"\b{name}\b", theirs)}
    return found


def test_private_names_of_redis_py_that_delayq_uses_are_listed():
    assert looked_up() | overridden() == USED.keys()


@pytest.mark.parametrize("name", USED)
def test_redis_py_has_the_private_name(name: str):
    holders = []
    for path in USED[name]:
        module, _, cls = path.rpartition(".")
        found = getattr(importlib.import_module(module), cls, None)
        if found is not None and any(
            re.search(rf"\b{name}\b", inspect.getsource(each))
            for each in found.__mro__
            if each.__module__.startswith("redis.")
        ):
            holders.append(path)
    assert holders
