"""Generate the command-line reference from the commands, and the documentation and JSON Schema of
`--json` from their types."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from msgspec import inspect as types

from holdfast._operator.cli.exit_codes import ERROR_CODES, MEANINGS
from holdfast._operator.cli.json_output import SHAPES, ErrorData, answer_type, failure_type
from holdfast._operator.cli.main import main
from holdfast._operator.cli.session import JSON_VERSION

# -- the documentation of --json ----------------------------------------------------------------


TITLE = f"JSON output of the holdfast commands, version {JSON_VERSION}"
_REF = "#/$defs/"
_WORDS: dict[type, str] = {
    types.StrType: "text",
    types.BoolType: "true or false",
    types.NoneType: "null",
    types.IntType: "integer",
    types.FloatType: "number",
    types.DateTimeType: "time",
    types.AnyType: "any value",
}


def json_schema() -> str:
    """Return the JSON Schema of everything that `--json` prints."""
    answers = {command: answer_type(command) for command in SHAPES} | {"": failure_type()}
    schemas, parts = msgspec.json.schema_components(answers.values(), ref_template=_REF + "{name}")
    for kind in objects():
        _tell_times(kind, parts.get(kind.__name__) or parts[_long(kind)])
    whole = {
        "title": TITLE,
        "description": "commands: the output of each; the empty name: the output of a failed command.",
        "commands": dict(zip(answers, schemas, strict=True)),
        "$defs": {name: _open(parts[name]) for name in sorted(parts)},
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1).decode() + "\n"


def _open(part: dict[str, Any]) -> dict[str, Any]:
    """Allow unknown fields, because a later version may add some."""
    return {name: what for name, what in part.items() if name != "additionalProperties"}


def _tell_times(kind: type, part: dict[str, Any]) -> None:
    """Mark the strings that are times; msgspec does not, because they may have any zone."""
    for field in fields_of(kind):
        told = part["properties"][field.encode_name]
        for each in (told, *told.get("anyOf", ())):
            if "time" in type_text(field.type).split(" or ") and each.get("type") == "string":
                each["format"] = "date-time"


# -- the page ----------------------------------------------------------------------------------


def json_page() -> str:
    """Return the reference page of the JSON output."""
    return "\n".join(_json_page()) + "\n"


def _json_page() -> Iterator[str]:
    yield "# JSON"
    yield ""
    yield (
        "The output of `--json`. This page is generated from the types of the answers by "
        "`python docs/generate_cli.py`, as is [json.schema.json](json.schema.json), the same as a "
        "JSON Schema."
    )
    yield ""
    yield (
        f'With `--json` a command prints one object on standard output. It has `"version": '
        f'{JSON_VERSION}` and `"command"`, and `"warning"` if the store lost commits. With `--follow` it prints one '
        "such object per line. A later version of Holdfast may add fields and kinds; it removes none "
        'and changes no meaning without another `"version"`. So read the fields that you know, and '
        "ignore the rest."
    )
    yield ""
    yield (
        "A command that fails prints `error` (ErrorData) and `exit_code` instead; "
        "[exit codes](cli.md#exit-codes) are for scripts. Times are in UTC, in ISO 8601. Objects of "
        "your classes are shown in a form that does not need the classes, such as "
        '`{"Chat": {"messages": []}}`. Text is unchanged: it may contain control characters, '
        "with JSON escapes; a program that displays it must neutralize them."
    )
    yield ""
    yield "## Commands"
    for command in sorted(SHAPES):
        yield ""
        yield f"### holdfast {command}"
        yield ""
        yield from answer_lines(command)
    yield ""
    yield "## Objects"
    for kind in objects():
        yield from _object(kind)


def answer_lines(command: str) -> Iterator[str]:
    """Yield the fields that a command adds to its object, one line each."""
    notes = SHAPES[command]
    for field in fields_of(answer_type(command)):
        if field.name in notes:
            note = notes[field.name].note
            yield _line(field, note, missing=notes[field.name].may_be_missing)


def _object(kind: type) -> Iterator[str]:
    yield ""
    yield f"### {_name(kind)}"
    yield ""
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        yield " ".join(kind.__doc__.split())
        yield ""
    docs = _docs(kind)
    for field in fields_of(kind):
        missing = kind is ErrorData and not field.required
        yield _line(field, docs.get(field.name, ""), missing=missing)


def _line(field: Any, note: str, *, missing: bool) -> str:
    told = f"* `{field.encode_name}` ({type_text(field.type)}{', or missing' if missing else ''})"
    return f"{told}: {note}" if note else told


def fields_of(kind: type) -> Sequence[Any]:
    """Return the fields of a class from msgspec."""
    info: Any = types.type_info(kind)
    found: Sequence[Any] = info.fields
    return found


def type_text(info: Any) -> str:
    """Return a type in words."""
    if isinstance(info, types.UnionType):
        parts = [type_text(each) for each in info.types]
        return " or ".join(
            f"({it})" if it.startswith(("list", "object of")) else it for it in parts
        )
    if isinstance(info, (types.StructType, types.DataclassType)):
        return _name(info.cls)
    if isinstance(info, types.EnumType):
        return " or ".join(f'"{each.value}"' for each in info.cls)
    if isinstance(info, types.LiteralType):
        return " or ".join(f'"{each}"' for each in info.values)
    if isinstance(info, (types.ListType, types.VarTupleType, types.CollectionType)):
        return f"list of {_several(info.item_type)}"
    if isinstance(info, types.TupleType):
        return f"list: {', '.join(type_text(each) for each in info.item_types)}"
    if isinstance(info, types.DictType):
        is_any = isinstance(info.value_type, types.AnyType)
        return "object" if is_any else f"object of {_several(info.value_type)}"
    return _WORDS[type(info)]


def _several(info: Any) -> str:
    one = type_text(info)
    return f"({one})" if " or " in one else one


def _docs(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class and its bases: the string below each field."""
    base = kind.__base__
    inherited = {} if base is None or base in {object, msgspec.Struct} else _docs(base)
    return inherited | _own_docs(kind)


def _own_docs(kind: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            words = " ".join(str(text.value.value).split()).rstrip(".")
            found[field.target.id] = words[:1].lower() + words[1:]
    return found


def objects() -> list[type]:
    """Return every class whose objects occur in an answer, by name."""
    found: dict[str, type] = {_name(ErrorData): ErrorData}
    for command in SHAPES:
        for field in fields_of(answer_type(command)):
            _walk(field.type, found)
    return [found[name] for name in sorted(found)]


def _walk(info: Any, found: dict[str, type]) -> None:
    if isinstance(info, (types.StructType, types.DataclassType)):
        if found.get(_name(info.cls)) is info.cls:
            return
        found[_name(info.cls)] = info.cls
        for field in info.fields:
            _walk(field.type, found)
    elif isinstance(info, types.UnionType):
        for each in info.types:
            _walk(each, found)
    elif isinstance(info, (types.ListType, types.VarTupleType, types.CollectionType)):
        _walk(info.item_type, found)
    elif isinstance(info, types.TupleType):
        for each in info.item_types:
            _walk(each, found)
    elif isinstance(info, types.DictType):
        _walk(info.value_type, found)


def _long(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _name(kind: type) -> str:
    """Return the name of a class; two classes share a name and are distinguished by their
    module."""
    return "Finding (verify)" if _long(kind) == "holdfast._stores.structs.Damage" else kind.__name__


# -- the reference of commands ------------------------------------------------------------------


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "This page is generated from the commands: `python -m holdfast._operator.cli.reference`."
    yield ""
    yield from _fenced(_help(main, "holdfast"))
    yield "## Exit codes"
    yield ""
    yield from _exit_codes()
    for name in sorted(main.commands):
        yield f"## holdfast {name}"
        yield ""
        yield from _fenced(_help(main.commands[name], f"holdfast {name}"))
        yield from _parts(name)
    yield from _json()


def _exit_codes() -> Iterator[str]:
    """Yield the table of exit codes: the meaning of each, and the errors that end a command with
    it."""
    yield "| code | meaning | errors |"
    yield "|---|---|---|"
    for code, meaning in MEANINGS.items():
        errors = ", ".join(f"`{kind.__name__}`" for kind, told in ERROR_CODES if told == code)
        yield f"| {code} | {meaning} | {errors} |"
    yield ""
    yield (
        "The errors are classes of `holdfast.errors`. All others end a command with 1, as does "
        "a damaged file that is not the store's own, such as an export."
    )
    yield ""


def _parts(name: str) -> Iterator[str]:
    """Yield the sections of the commands of a group, or the JSON output of a command."""
    group = main.commands[name]
    if not isinstance(group, click.Group):
        for form in (each for each in SHAPES if each.partition(" --")[0] == name):
            option = form.removeprefix(name).strip()
            yield f"With `--json` and `{option}`:" if option else "With `--json`:"
            yield ""
            yield from answer_lines(form)
            yield ""
        return
    for part, command in sorted(group.commands.items()):
        yield from _fenced(_help(command, f"holdfast {name} {part}"))
        yield "With `--json`:"
        yield ""
        yield from answer_lines(f"{name} {part}")
        yield ""


def _json() -> Iterator[str]:
    yield "## JSON"
    yield ""
    yield (
        'With `--json` a command prints one object on standard output. It has `"version": 1`, '
        '`"command"`, and `"warning"` if the store lost commits. A command that fails prints `error` '
        "and `exit_code`. [json.md](json.md) lists every object and field, and which changes a later "
        "version may make."
    )


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command,
        info_name=name,
        max_content_width=80,
        terminal_width=80,
        help_option_names=main.context_settings["help_option_names"],
    )
    text = command.get_help(context)
    return text.partition("\n\n  Exit codes:")[0]


def _fenced(text: str) -> Iterator[str]:
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"
    yield ""


if __name__ == "__main__":
    click.echo(reference(), nl=False)
