"""The OpenAPI document and the API page match real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Queue
from delayq.web import Token, Users, user_line
from delayq.web.api.openapi import components
from delayq.web.api.operation import ApiRoute, Operation
from delayq.web.api.table import OPERATIONS
from delayq.web.app import app
from tests.harness.servers import RedisServer
from tests.harness.web.api import BODIES, TOKEN, is_problem, path_of, stocked_with
from tests.web.conftest import Client, Enter
from tests.web.test_api_acts import act

DOCUMENT = "/api/v1/openapi.json"


@pytest.fixture
def client(enter: Enter, queue: Queue, redis_server: RedisServer) -> Iterator[Client]:
    with stocked_with(queue, redis_server.url):
        yield enter()


def fits(value: Any, schema: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether a value matches a schema, as far as the API's schemas use the standard."""
    if "$ref" in schema:
        return fits(value, known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return any(fits(value, each, known) for each in schema["anyOf"])
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    if kind == "number":
        return isinstance(value, int | float)
    if kind is not None and not (isinstance(value, kinds[kind]) and not (kind == "integer" and value is True)):
        return False
    if kind == "array":
        return all(fits(each, schema["items"], known) for each in value)
    if kind != "object":
        return True
    of, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    fields = all(fits(each, of.get(name, more), known) for name, each in value.items() if name in of or more)
    return fields and value.keys() >= set(schema.get("required", ())) and (bool(more) or value.keys() <= of.keys())


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [node["$ref"]] if "$ref" in node else []
        node = list(node.values())
    for each in node if isinstance(node, list) else ():
        yield from references(each)


def test_document_has_every_operation_and_no_broken_reference(client: Client):
    made = client.get(DOCUMENT).json()
    listed = {(method.upper(), path) for path, item in made["paths"].items() for method in item}
    assert listed == {(each.method, each.path) for each in OPERATIONS}
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
    routed = [route for route in app("redis://127.0.0.1:1").routes if isinstance(route, ApiRoute)]
    assert len(routed) == len(OPERATIONS)
    for each in set(references(made)):
        kind, _, name = each.removeprefix("#/components/").partition("/")
        assert name in made["components"][kind]
    for path, item in made["paths"].items():
        for operation in item.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_descriptions_are_complete_and_match_the_attributes():
    for name, schema in components().items():
        assert "Attributes:" not in schema["description"], name
        assert schema["description"].endswith("."), name


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_answer_matches_the_document(client: Client, operation: Operation):
    made = client.get(DOCUMENT).json()
    path = path_of(operation).replace("/messages/m/edit", "/messages/dead/edit")
    if "{job}" in operation.path:
        path = path.replace("none", act(client, "/api/v1/servers/main/queues/emails/examine").json()["id"])
    answer = act(client, path, BODIES.get(operation.name)) if operation.acts else client.get(path)
    described = made["paths"][operation.path][operation.method.lower()]["responses"][str(answer.status_code)]
    known = made["components"]["schemas"]
    assert fits(answer.json(), described["content"]["application/json"]["schema"], known), answer.json()
    refused = client.get(path.replace("/main", "/none")) if not operation.acts else act(client, path, {"none": 1})
    if operation.parameters:
        assert str(refused.status_code) in made["paths"][operation.path][operation.method.lower()]["responses"]
        assert fits(refused.json(), {"$ref": "#/components/schemas/Problem"}, known)


@pytest.mark.usefixtures("cheap_passwords")
def test_document_says_how_to_log_in_and_needs_a_login(enter: Enter):
    client = enter(login=Token(TOKEN))
    assert is_problem(client.get(DOCUMENT), 401)
    made = client.get(DOCUMENT, headers={"authorization": f"Bearer {TOKEN}"}).json()
    assert made["components"]["securitySchemes"] == {"login": {"type": "http", "scheme": "bearer"}}
    users = enter(login=Users([user_line("ann", "viewer", "correct horse")]))
    made = users.get(DOCUMENT, headers={"authorization": "Basic YW5uOmNvcnJlY3QgaG9yc2U="}).json()
    assert made["components"]["securitySchemes"]["login"]["scheme"] == "basic"
    assert "securitySchemes" not in enter().get(DOCUMENT).json()["components"]


def test_page_shows_every_operation_and_has_no_broken_link(client: Client):
    assert client.get("/api/v1").headers["location"].endswith("/api/v1/")
    page = client.get("/api/v1/").text
    for each in OPERATIONS:
        assert f'id="{each.name}">{each.method} {each.path}</h3>' in page
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert '<a href="/api/v1/">API</a></footer>' in client.get("/").text


def test_page_asks_a_browser_for_its_login(enter: Enter):
    assert enter(login=Token(TOKEN)).get("/api/v1/").headers["location"] == "/login?next=%2Fapi%2Fv1%2F"
