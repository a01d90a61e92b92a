"""The OpenAPI 3.1 description of the API, generated from the table of routes and their structs."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast._operator.web.routes import API, Nothing, Route

PATH = f"{API}/openapi.json"
ERROR = "Error"
_PLACE = "#/components/schemas/{name}"
_REFUSALS = {
    "400": "The request is invalid; the message says why.",
    "401": "No valid token or session.",
    "403": "The role is not sufficient, or another site sent the request.",
    "404": "There is no such run, queue or schedule.",
    "409": "The run has changed, was answered before, or the request concerns effects and is not "
    "confirmed (then `effects` lists them).",
    "410": "The run was deleted.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "421": "The Host header does not name this server.",
    "429": "Too many requests, streams or wrong credentials.",
    "500": "The run is damaged (Corrupt), or there was an internal error.",
    "503": "The store is not available now.",
}


class ErrorTold(msgspec.Struct):
    """An error, by the name of its class."""

    type: str
    message: str
    run_id: str | None = None
    effects: list[str] | None = None


class Error(msgspec.Struct):
    """The response for an error."""

    error: ErrorTold
    version: int = 1


@functools.lru_cache(maxsize=1)
def describe(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the description of a table of routes."""
    types = [route.answer for route in routes if route.kind == "json"]
    types += [route.body for route in routes if route.body is not None]
    (*schemas, _), components = msgspec.json.schema_components([*types, Error], ref_template=_PLACE)
    bodies = iter(schemas[len(types) - sum(route.body is not None for route in routes) :])
    answers = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        answer = next(answers) if route.kind == "json" else None
        body = None if route.body is None else next(bodies)
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, answer, body)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": "1",
            "description": "Read the runs of a store, and decide about them.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
        "security": [{"token": []}, {"session": []}],
    }


_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "holdfast tokens create"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "holdfast-PORT",
        "description": "For browsers. Every request also needs the header X-Holdfast-CSRF, with the `csrf` "
        "from the answer of POST /api/v1/session.",
    },
}


def _operation(route: Route, answer: Any, body: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _name(route),
        "parameters": list(_parameters(route)),
        "responses": {"200": _answer(route, answer)},
    }
    refusals = _REFUSALS if route.role is not None else ("401", "421", "429")
    for status in refusals:
        told["responses"][status] = {
            "description": _REFUSALS[status],
            "content": {"application/json": {"schema": {"$ref": _PLACE.format(name=ERROR)}}},
        }
    if body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if route.role is None:
        told["security"] = []
    else:
        told["x-role"] = route.role.word
    return told


def _name(route: Route) -> str:
    name = route.path.removeprefix(API).strip("/").replace("/", "_").replace("-", "_")
    return f"{route.method.lower()}_{name.replace('.', '_')}"


def _answer(route: Route, schema: Any) -> dict[str, Any]:
    kind = {"json": "application/json", "stream": "text/event-stream", "text": "text/plain"}
    content = {"schema": schema if schema is not None else {"type": "string"}}
    return {"description": route.summary, "content": {kind[route.kind]: content}}


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    if route.query is not Nothing:
        _, components = msgspec.json.schema_components([route.query], ref_template=_PLACE)
        [schema] = components.values()
        for name, about in schema["properties"].items():
            needed = name in schema.get("required", ())
            yield {"name": name, "in": "query", "required": needed, "schema": about}
    if route.sees:
        about = "The `etag` of the run that the decision was made on, in quotes."
        text = {"type": "string"}
        yield {
            "name": "If-Match",
            "in": "header",
            "required": True,
            "description": about,
            "schema": text,
        }
