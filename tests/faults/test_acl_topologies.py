"""The rights that docs/acl.md adds on a Cluster and behind Sentinel: sufficient, all needed, named when missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from redis.crc import key_slot

from delayq import Outgoing, Queue
from delayq.errors import LoginRefused
from delayq.operations.queue_context import QueueContext
from delayq.protocol.queue_keys import QueueKeys
from tests.conftest import binary
from tests.faults.test_acl import OWN, SHARDED
from tests.harness.acl.roles import STORIES
from tests.harness.acl.telling import LINES, ON_OCCASION, PAGE, act, denials
from tests.harness.pages import blocks
from tests.harness.servers import KNOWN_VERSIONS, RedisServer
from tests.harness.topologies import Cluster, Watched, refusals, tell
from tests.harness.waiting import eventually

(TO_A_CLUSTER,) = (words for block in blocks(PAGE) if (words := block.text.split())[0] == "+cluster|slots")
FINDER = LINES["finder"]
ASKING: dict[str, Any] = {"sentinel_username": "finder", "sentinel_password": "secret", "health_check_interval": 0.001}

pytestmark = pytest.mark.full

each_version = pytest.mark.parametrize("make", KNOWN_VERSIONS, indirect=True)


@pytest.fixture(scope="module")
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., RedisServer]]:
    """Make servers of one version, shared by all tests of that version."""
    with ExitStack() as stack:

        def start(**options: Any) -> RedisServer:
            server = RedisServer(binary(request.param), **options)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture(scope="module")
def shared_cluster(make: Callable[..., RedisServer]) -> Cluster:
    return Cluster(make, masters=2)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    for node in shared_cluster.nodes:
        node.flush()
    return shared_cluster


@pytest.fixture(scope="module")
def shared_watched(make: Callable[..., RedisServer]) -> Watched:
    return Watched(make)


@pytest.fixture
def watched(shared_watched: Watched) -> Watched:
    shared_watched.master.flush()
    return shared_watched


def roles_on(server: RedisServer) -> Iterable[str]:
    """Return all roles for the newest version; for an older one, which may know other commands, the broadest role."""
    return OWN if server.version == KNOWN_VERSIONS[-1] else ("consumer",)


def grant(servers: Iterable[RedisServer], user: str, rights: Iterable[str]) -> None:
    for server in servers:
        with server.client() as admin:
            admin.execute_command("ACL", "SETUSER", user, *rights)
            admin.execute_command("ACL", "LOG", "RESET")


def denied(servers: Iterable[RedisServer], user: str) -> set[str]:
    """Return what the user was denied since the last grant without an error."""
    return {each for server in servers for each in denials(server, user)}


def as_user(url: str, user: str, shards: int = 1, **settings: Any) -> Queue:
    said = "&".join(f"{name}={value}" for name, value in settings.items())
    return Queue("emails", url=f"{url.replace('://', f'://{user}:secret@')}?{said}", shards=shards)


def as_root(url: str, shards: int = 1) -> Queue:
    return Queue("emails", url=url, shards=shards)


def open_queue(mine: Queue) -> None:
    """Do what every role does first."""
    act(mine, mine._context.shards[0].open_queue(1, create=False))


@contextmanager
def slot_on_its_way(cluster: Cluster) -> Iterator[RedisServer]:
    """Move the queue's slot without telling the clients; yield the node that redirects them."""
    key = QueueKeys("delayq", "emails").meta
    source, slot = cluster.owner(key), key_slot(key.encode())
    (target,) = (node for node in cluster.nodes if node is not source)
    tell(target, "SETSLOT", slot, "IMPORTING", cluster.id(source))
    tell(source, "SETSLOT", slot, "MIGRATING", cluster.id(target))
    try:
        yield source
    finally:
        for node in (source, target):
            tell(node, "SETSLOT", slot, "STABLE")


# -- on a Cluster ------------------------------------------------------------------------------------------------------


@each_version
def test_role_can_do_everything_it_should_on_a_cluster(cluster: Cluster) -> None:
    for role in roles_on(cluster.nodes[0]):
        grant(cluster.nodes, role, [*LINES[role], *TO_A_CLUSTER])
        for story in OWN[role]:
            for node in cluster.nodes:
                node.flush()
            with as_user(cluster.url, role) as mine, as_root(cluster.url) as root:
                STORIES[story](mine, root)
            assert denied(cluster.nodes, role) == set(), (role, story)


@each_version
def test_role_follows_a_slot_that_moves(cluster: Cluster) -> None:
    for role in roles_on(cluster.nodes[0]):
        grant(cluster.nodes, role, [*LINES[role], *TO_A_CLUSTER])
        with as_user(cluster.url, role) as mine, slot_on_its_way(cluster) as source:
            asked = refusals(source).get("ASK", 0)
            open_queue(mine)
            assert refusals(source)["ASK"] > asked, role


@each_version
def test_shards_on_several_nodes_need_the_additional_key_pattern(cluster: Cluster) -> None:
    ids = [f"m{number}" for number in range(20)]
    with as_root(cluster.url, shards=4) as root:
        root.send_many([Outgoing("x", id=each, delay=60) for each in ids])
    owners = {cluster.owner(scripts.keys.meta) for scripts in root._context.shards}
    assert owners == set(cluster.masters)

    def touch_all(role: str) -> None:
        with as_user(cluster.url, role, shards=4) as mine:
            mine.execute(QueueContext.opened)
            for each in ids:
                SHARDED[role](mine, each)

    for role in roles_on(cluster.nodes[0]):
        grant(cluster.nodes, role, [*LINES[role], *TO_A_CLUSTER])
        with pytest.raises(LoginRefused, match="keys of the queue"):
            touch_all(role)
        grant(cluster.nodes, role, [ON_OCCASION["a queue with shards"]])
        touch_all(role)


@each_version
def test_file_can_be_sent_to_a_cluster_with_the_optional_rights(cluster: Cluster) -> None:
    more = ON_OCCASION["`delayq send --file`"].split()
    grant(cluster.nodes, "producer", [*LINES["producer"], *TO_A_CLUSTER, *more])
    with as_user(cluster.url, "producer") as mine, as_root(cluster.url) as root:
        STORIES["sends_a_file"](mine, root)


@each_version
@pytest.mark.parametrize("right", [*TO_A_CLUSTER, "+client|setname"])
def test_missing_right_on_a_cluster_is_named(right: str, cluster: Cluster) -> None:
    for role in roles_on(cluster.nodes[0]):
        grant(cluster.nodes, role, [each for each in [*LINES[role], *TO_A_CLUSTER] if each != right])
        with slot_on_its_way(cluster), as_user(cluster.url, role) as mine, pytest.raises(LoginRefused) as caught:
            open_queue(mine)
        assert f"grant this user {right}" in str(caught.value), role
        nobody_is_left = partial(no_connection_of, role, cluster)
        assert eventually(nobody_is_left), f"a connection of the {role} stayed open"


def no_connection_of(user: str, cluster: Cluster) -> bool:
    """Whether no node has one."""
    for node in cluster.nodes:
        with node.client() as admin:
            if any(each["user"] == user for each in admin.client_list()):
                return False
    return True


@each_version
def test_user_unknown_to_a_cluster_gets_an_error_that_says_so(cluster: Cluster) -> None:
    with as_user(cluster.url, "nobody") as mine, pytest.raises(LoginRefused, match="check the user, the password"):
        open_queue(mine)


# -- behind Sentinel ---------------------------------------------------------------------------------------------------


@each_version
def test_role_can_do_everything_it_should_behind_sentinel(watched: Watched) -> None:
    for role in roles_on(watched.master):
        grant([watched.master], role, LINES[role])
        grant(watched.sentinels, "finder", FINDER)
        for story in OWN[role]:
            watched.master.flush()
            with as_user(watched.url, role, **ASKING) as mine, as_root(watched.url) as root:
                STORIES[story](mine, root)
                look_again(mine)
            assert denied([watched.master], role) | denied(watched.sentinels, "finder") == set(), (role, story)


def look_again(mine: Queue) -> None:
    """Ask the sentinels twice, the second time on connections that count as idle, so that a PING checks them."""
    open_queue(mine)
    client: Any = mine._executor.client
    time.sleep(0.002)
    client.connection_pool.disconnect()
    open_queue(mine)


@each_version
@pytest.mark.parametrize("right", FINDER[3:])
def test_missing_right_to_ask_a_sentinel_is_named(right: str, watched: Watched) -> None:
    grant([watched.master], "producer", LINES["producer"])
    grant(watched.sentinels, "finder", [each for each in FINDER if each != right])
    with as_user(watched.url, "producer", **ASKING) as mine, pytest.raises(LoginRefused) as caught:
        look_again(mine)
    assert f"the sentinel 127.0.0.1:{watched.sentinels[0].port}" in str(caught.value)
    assert f"grant this user {right}" in str(caught.value)


@each_version
def test_login_refused_by_a_sentinel_is_reported_and_not_repeated(watched: Watched) -> None:
    grant([watched.master], "producer", LINES["producer"])
    grant(watched.sentinels, "finder", FINDER)
    with (
        as_user(watched.url, "producer", **ASKING | {"sentinel_password": "wrong"}) as mine,
        pytest.raises(LoginRefused, match="the sentinel 127"),
    ):
        mine.send("x")
    with watched.sentinels[0].client() as admin:
        assert [(each["reason"], each["count"]) for each in admin.acl_log()] == [("auth", 1)]


@each_version
def test_other_sentinels_are_asked_when_one_refuses_the_login(
    watched: Watched, make: Callable[..., RedisServer]
) -> None:
    grant([watched.master], "producer", LINES["producer"])
    grant(watched.sentinels, "finder", FINDER)
    strange = make(port=True, sentinel=True)
    url = watched.url.replace("://", f"://127.0.0.1:{strange.port},")
    for rights in (["reset"], [each for each in FINDER if each != "+sentinel|masters"]):  # no login; no right
        grant([strange], "finder", rights)
        with as_user(url, "producer", **ASKING) as mine:
            assert mine.send("x").created
        assert denied([strange], "finder")
