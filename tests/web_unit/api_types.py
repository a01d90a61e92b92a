"""Writes the types of the page's requests and answers: `python -m tests.web_unit.api_types`.

They are made of the description of the API, so a module of the page that asks for a field that no
answer has does not pass `make check`. `--check` writes nothing, and ends with 1 if the file is old.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from holdfast._operator.web import app, openapi
from holdfast._operator.web.routes import API
from tests.tidy.source import PACKAGE

FILE = PACKAGE / "_operator" / "web" / "static" / "lib" / "api-types.d.ts"
HEAD = """\
// What the API takes and answers. Written by `python -m tests.web_unit.api_types` from the description
// of the API (/api/v1/openapi.json); a test fails when it is old. Nothing of it is served.
"""
WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}  # fmt: skip


def text() -> str:
    """Return the whole file."""
    described = openapi.describe(tuple(app.routes()))
    schemas: dict[str, Any] = described["components"]["schemas"]
    bodies = {name for path in described["paths"].values() for name in _bodies(path)}
    parts = [HEAD]
    parts += [_declared(name, schemas[name], sent=name in bodies) for name in sorted(schemas)]
    parts += _tables(described["paths"])
    return "\n".join(parts)


def _bodies(path: dict[str, Any]) -> Iterator[str]:
    for operation in path.values():
        body = operation.get("requestBody")
        if body is not None:
            yield _schema(body)["$ref"].rpartition("/")[2]


def _schema(holder: dict[str, Any]) -> dict[str, Any]:
    [content] = holder["content"].values()
    schema: dict[str, Any] = content["schema"]
    return schema


def _declared(name: str, schema: dict[str, Any], *, sent: bool) -> str:
    about = " ".join(schema.get("description", "").split())
    said = f"/** {about} */\n" if about else ""
    if "properties" not in schema:
        return f"{said}export type {name} = {_type(schema)};\n"
    # An answer has all its fields; of a request, those with a default may be left out.
    needed = schema.get("required", ()) if sent else schema["properties"]
    lines = [
        f"  {field}{'' if field in needed else '?'}: {_type(about)};\n"
        for field, about in schema["properties"].items()
    ]
    return f"{said}export interface {name} {{\n{''.join(lines)}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if "prefixItems" in schema:
        return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
    kind = schema.get("type")
    if kind == "array":
        inner = _type(schema["items"]) if schema.get("items") else "any"
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
    return "any" if kind is None else WORDS[kind]


def _tables(paths: dict[str, Any]) -> Iterator[str]:
    """What is read and done, by path: what it takes, and what it answers."""
    reads, acts, streams = [], [], []
    for path, operations in paths.items():
        if not path.startswith(f"{API}/"):
            continue
        name = json.dumps(path.removeprefix(f"{API}/"))
        for method, operation in operations.items():
            asked = _asked(operation)
            answer = _type(_schema(operation["responses"]["200"]))
            if "text/event-stream" in operation["responses"]["200"]["content"]:
                streams.append(f"  {name}: {asked};\n")
            elif method == "get":
                reads.append(f"  {name}: {{ asked: {asked}; answer: {answer} }};\n")
            elif method == "post":
                body = _type(_schema(operation["requestBody"]))
                acts.append(f"  {name}: {{ asked: {asked}; body: {body}; answer: {answer} }};\n")
    yield f"/** What can be read. */\nexport interface Reads {{\n{''.join(reads)}}}\n"
    yield f"/** What can be done. */\nexport interface Acts {{\n{''.join(acts)}}}\n"
    yield f"/** What can be listened to. */\nexport interface Streams {{\n{''.join(streams)}}}\n"


def _asked(operation: dict[str, Any]) -> str:
    fields = [
        f"{one['name']}{'' if one['required'] else '?'}: {_given(_type(one['schema']))}"
        for one in operation["parameters"]
        if one["in"] == "query"
    ]
    return f"{{ {'; '.join(fields)} }}" if fields else "{}"


def _given(kind: str) -> str:
    """Return what may be given for a parameter: an address is text, and null is left out of it."""
    written = {
        "number": "number | string",
        "boolean": "boolean | number",
        "string[]": "string[] | string",
    }
    kinds = [written.get(one, one) for one in kind.split(" | ")]
    return " | ".join(dict.fromkeys([*kinds, "null"]))


def main() -> int:
    """Write the file, or say whether it is what it should be."""
    said = text()
    if "--check" not in sys.argv:
        FILE.write_text(said, encoding="utf-8")
    return 0 if FILE.read_text(encoding="utf-8") == said else 1


if __name__ == "__main__":
    sys.exit(main())
