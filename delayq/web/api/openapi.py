"""The OpenAPI document of the API, built from the table of operations and their structs."""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import Any

import msgspec

import delayq
from delayq.web.api.operation import MOST_KEY, ROOT, Operation
from delayq.web.api.table import OPERATIONS
from delayq.web.problems import MEDIA_TYPE, Problem

REF = "#/components/schemas/"

REFUSALS: dict[int, str] = {
    400: "The request is invalid; `field` names the invalid field, if there is one.",
    401: "The credentials are missing or wrong.",
    403: "The user may not do this, or the request may be forged.",
    404: "Nothing has this name.",
    409: "This is not possible in the present state.",
    413: "The request is too large.",
    415: "The request is not JSON.",
    421: "The dashboard does not answer to this host name.",
    429: "Too many wrong guesses: wait for the number of seconds in Retry-After.",
    500: "Internal error: see the dashboard's log.",
    503: "Redis does not answer: retry after the number of seconds in Retry-After.",
}
"""The meaning of each status."""

ACTING_ONLY = {409, 413, 415}

ABOUT = (
    "Programs can do what the pages of the dashboard can do. Operations that change something are POST requests with "
    "JSON; add an Idempotency-Key to repeat a request safely. Times are RFC 3339 in UTC, and durations are seconds. A "
    "POST from a browser needs the header X-CSRF-Token."
)


def document(path: str, scheme: str | None) -> dict[str, Any]:
    """Return the document.

    Args:
        path: where the dashboard is mounted; empty for the root.
        scheme: how programs log in, "bearer" or "basic"; None if they need not, or if it is not known.
    """
    paths: dict[str, dict[str, Any]] = {}
    schemas = components()
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    problem = {"schema": {"$ref": f"{REF}Problem"}}
    refusals = {
        str(status): {"description": text, "content": {MEDIA_TYPE: problem}} for status, text in REFUSALS.items()
    }
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "delayq", "version": delayq.__version__, "description": ABOUT},
        "servers": [{"url": f"{path}{ROOT}"}],
        "tags": [{"name": name} for name in dict.fromkeys(each.tag for each in OPERATIONS)],
        "paths": paths,
        "components": {"schemas": schemas, "responses": refusals},
    }
    if scheme:
        made["components"]["securitySchemes"] = {"login": {"type": "http", "scheme": scheme}}
        made["security"] = [{"login": []}]
    return made


def components() -> dict[str, Any]:
    """Return the schemas of all structs by name; each property has its description from the struct's docstring."""
    kinds = [Problem, *(kind for each in OPERATIONS for kind in (each.query, each.body, each.answer))]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(kinds), ref_template=f"{REF}{{name}}")
    for schema in schemas.values():
        text, _, attributes = inspect.cleandoc(schema.pop("description", "")).partition("\n\nAttributes:\n")
        schema["description"] = _line(text)
        for names, description in re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE):
            for name in names.split(", "):
                schema["properties"][name]["description"] = _line(description)
    return schemas


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    summary, _, more = operation.text.partition("\n\n")
    content = {"application/json": {"schema": {"$ref": f"{REF}{operation.answer.__name__}"}}}
    done = {"description": HTTPStatus(operation.status).phrase, "content": content}
    refusals = {
        str(status): {"$ref": f"#/components/responses/{status}"}
        for status in REFUSALS
        if operation.acts or status not in ACTING_ONLY
    }
    made: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": _line(summary),
        "parameters": [*_parameters(operation, schemas)],
        "responses": {str(operation.status): done} | refusals,
    }
    if operation.is_former:
        made["deprecated"] = True
    if more:
        made["description"] = _line(more)
    if operation.acts:
        body = {"schema": {"$ref": f"{REF}{operation.body.__name__}"}}
        made["requestBody"] = {"required": True, "content": {"application/json": body}}
    return made


def _parameters(operation: Operation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in operation.parameters
    ]
    for name, schema in schemas[operation.query.__name__]["properties"].items():
        described = {"description": schema["description"]} if "description" in schema else {}
        kind = {key: value for key, value in schema.items() if key != "description"}
        found.append({"name": name, "in": "query", "required": False, "schema": kind} | described)
    if operation.acts:
        described = {"description": "A key that you choose: a request that you repeat with the same key acts once."}
        kind = {"type": "string", "minLength": 1, "maxLength": MOST_KEY, "pattern": "^[!-~]+$"}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": kind} | described)
    return found


def _line(text: str) -> str:
    return " ".join(text.split())


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a schema in words, such as ``string or null``."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {kind_of(schema['items'])}"
    if schema.get("type") == "object" and "additionalProperties" in schema:
        return f"object of {kind_of(schema['additionalProperties'])}"
    return str(schema.get("format") or schema.get("type") or "any JSON")
