"""From a value to its node: the half of the codec that decides what is exact.

Plain data is walked for its exact types and then coded in C. Everything else is taken apart, and
rebuilt by the functions that the reader uses; what was rebuilt must have the very parts it was built
from. By induction from the leaves up, what the reader gives is then the same as what was written.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from holdfast._engine.values.class_codecs import Misfit, Parts, Shape, class_of, has_parts
from holdfast._engine.values.class_registry import Known
from holdfast._engine.values.node_parts import (
    DEPTH_MAX_LEVELS,
    VALUE_MAX_BYTES,
    from_json,
    member_of,
    read_enum,
)
from holdfast._engine.values.scalars import LEAVES, Leaf, Unfit
from holdfast.errors import NotSerializable

NODES_MAX_COUNT: Final = 1_000_000
PATH_SHOWN_CHARS: Final = 200

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_json_into = msgspec.json.Encoder().encode_into

_SCALARS = frozenset({str, int, float, bool, type(None)})


def to_json(value: object) -> bytes:
    """Encode a value of any size.

    If its output buffer cannot grow, `Encoder.encode` of msgspec (0.22 at least) ends the process
    with a segmentation fault; `encode_into` raises MemoryError.
    """
    output = bytearray()
    _json_into(value, output)
    return bytes(output)


def is_plain(value: object, levels: int = DEPTH_MAX_LEVELS) -> bool:
    """Return whether it consists of exact JSON types only. (A lone surrogate in a text is found
    later.)

    The walk goes level by level. That bounds the depth without a count at every element, and ends
    on a cycle too.
    """
    level: list[Any] = [value]
    count = 0
    for _ in range(levels + 1):
        below: list[Any] = []
        for part in level:
            kind = class_of(part)
            if kind is str or part is None or kind is bool:
                continue
            if kind is dict:
                for key in part:
                    if type(key) is not str:
                        return False
                below.extend(part.values())
            elif kind is list:
                below.extend(part)
            elif kind is int:
                if not INT_MIN <= part <= INT_MAX:
                    return False
            elif kind is not float or part - part != 0:  # NaN and the infinities differ from 0 here
                return False
        if not below:
            return True
        level = below
        count += len(below)
        if count > NODES_MAX_COUNT:
            return False
    return False


def surely_long(value: Any, limit: int) -> bool:
    """Return whether the JSON of this plain dict or list is longer than the limit. A quick look;
    False for unsure.

    It avoids writing a dict of arguments as a whole when a long list in it is stored separately.
    """
    kind = class_of(value)
    if kind is list and len(value) > limit // 2:
        return True
    for part in value.values() if kind is dict else value[:16]:
        inner = class_of(part)
        if (inner is list and len(part) > limit // 2) or (inner is str and len(part) > limit):
            return True
    return False


class Refused(Exception):
    """A value cannot be written; collects the path to it on its way up."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        whole = root + "".join(reversed(self.steps))
        half = PATH_SHOWN_CHARS // 2
        return whole if len(whole) <= PATH_SHOWN_CHARS else f"{whole[:half]} ... {whole[-half:]}"


class Writer:
    """Writes one value. `copying`: its result shares nothing mutable with the value."""

    def __init__(self, known: Known, *, copying: bool = False) -> None:
        self.known = known
        self.copying = copying
        self._bytes = 0
        self._nodes = 0
        self._open: set[int] = set()

    def write(self, value: object, path: str) -> tuple[bytes, Any]:
        """Return the node, and the value as the reader would give it."""
        try:
            return self.walk(value)
        except Refused as refused:
            raise NotSerializable(refused.path(path), refused.why) from None
        except RecursionError:
            raise NotSerializable(
                path, "it is nested too deeply for what is left of the stack"
            ) from None

    # --- what a subclass that stores parts elsewhere overrides ----------------------------------

    def text(self, value: str) -> bytes:
        return self._text(value)

    def plain(self, value: Any) -> bytes:
        """Write the node of a plain dict or list."""
        raw = to_json(value)
        self.count(raw)
        return b'{"plain":%b}' % raw

    def listing(self, nodes: list[bytes]) -> bytes:
        return b"[%b]" % b",".join(nodes)

    def place(self, node: bytes) -> bytes:
        """Hook for every finished node of a container."""
        return node

    # --- the walk -------------------------------------------------------------------------------

    def walk(self, value: Any) -> tuple[bytes, Any]:
        kind = class_of(value)
        if kind is str:
            return self.text(value), value
        if value is None or kind is bool or (kind is int and INT_MIN <= value <= INT_MAX):
            return to_json(value), value
        if kind is float and value - value == 0:
            return to_json(value), value
        if kind is dict or kind is list:
            if is_plain(value, DEPTH_MAX_LEVELS - len(self._open)):
                return self._plain(value)
        elif kind in LEAVES:
            return self._leaf(value, LEAVES[kind])
        return self._inside(value, self._container(value, kind))

    def _plain(self, value: Any) -> tuple[bytes, Any]:
        try:
            return self.plain(value), msgspec.to_builtins(value) if self.copying else value
        except UnicodeEncodeError:  # The slow path finds the text with the surrogate, and its path.
            return self._inside(value, self._container(value, class_of(value)))

    def _inside(
        self, value: object, write: Callable[[Any], tuple[bytes, Any]]
    ) -> tuple[bytes, Any]:
        """Go one level down: cycles, depth and the number of parts are bounded here."""
        mark, self._nodes = id(value), self._nodes + 1
        if mark in self._open:
            raise Refused("it contains itself")
        if len(self._open) >= DEPTH_MAX_LEVELS:
            raise Refused(f"it is nested more than {DEPTH_MAX_LEVELS} levels deep")
        if self._nodes > NODES_MAX_COUNT:
            raise Refused(f"it has more than {NODES_MAX_COUNT:,} parts")
        self._open.add(mark)
        node, copy = write(value)
        # Not in a `finally`: after a refusal the writer is discarded.
        self._open.discard(mark)
        return node, copy

    def _container(self, value: object, kind: type[Any]) -> Callable[[Any], tuple[bytes, Any]]:
        if kind is list:
            return self._list
        if kind is dict:
            return self._dict
        if kind is tuple:
            return self._tuple
        if kind is set or kind is frozenset:
            return self._set
        name = self.known.name_of(kind)
        if name is None:
            raise Refused(why_not(value, verb="return" if self.copying else "pass"))
        if issubclass(kind, enum.Enum):
            return self._enum
        return self._object

    def _elements(self, values: Iterable[object]) -> tuple[list[bytes], list[Any]]:
        nodes: list[bytes] = []
        copies: list[Any] = []
        for index, value in enumerate(values):
            try:
                node, copy = self.walk(value)
            except Refused as refused:
                refused.steps.append(f"[{index}]")
                raise
            nodes.append(node)
            copies.append(copy)
        return nodes, copies

    def _named(
        self, values: dict[str, Any], step: str, key: Callable[[str], bytes]
    ) -> tuple[bytes, dict[str, Any]]:
        """Return a JSON object of nodes, and the copies under the same names."""
        raw = self._scalars(values)
        if raw is not None:
            return raw, values
        nodes: list[bytes] = []
        copies: dict[str, Any] = {}
        for name, value in values.items():
            try:
                nodes.append(key(name) + b":" + (pair := self.walk(value))[0])
            except Refused as refused:
                refused.steps.append(step.format(name))
                raise
            copies[name] = pair[1]
        return b"{%b}" % b",".join(nodes), copies

    def _scalars(self, values: dict[str, Any]) -> bytes | None:
        """Most objects have a few short texts and numbers, which are their own nodes."""
        parts = values.values()
        if not _SCALARS.issuperset(map(type, parts)):
            return None
        for part in parts:
            if (type(part) is int and not INT_MIN <= part <= INT_MAX) or (
                type(part) is float and part - part != 0
            ):
                return None
        try:
            raw = to_json(values)
        except UnicodeEncodeError:
            return None  # The slow path finds it.
        return raw if self.is_small(raw) else None

    def is_small(self, raw: bytes) -> bool:
        self.count(raw)
        return True

    def count(self, raw: bytes) -> None:
        self._bytes += len(raw)
        if self._bytes > VALUE_MAX_BYTES:
            raise Refused(f"it is larger than {VALUE_MAX_BYTES // 2**20} MiB")

    def _text(self, value: str) -> bytes:
        try:
            raw = to_json(value)
        except UnicodeEncodeError:
            raise Refused("its text has a lone surrogate, which is no valid Unicode") from None
        self.count(raw)
        return raw

    def _list(self, value: list[Any]) -> tuple[bytes, Any]:
        nodes, copies = self._elements(value)
        return self.listing(nodes), copies

    def _tuple(self, value: tuple[Any, ...]) -> tuple[bytes, Any]:
        nodes, copies = self._elements(value)
        return self.place(b'{"tuple":[%b]}' % b",".join(nodes)), tuple(copies)

    def _set(self, value: set[Any] | frozenset[Any]) -> tuple[bytes, Any]:
        nodes, copies = self._elements(value)
        tag, made = (
            (b"set", set(copies)) if type(value) is set else (b"frozenset", frozenset(copies))
        )
        if len(made) != len(value):
            raise Refused("two of its elements could not be told apart when read back")
        return self.place(b'{"%b":[%b]}' % (tag, b",".join(sorted(nodes)))), made

    def _dict(self, value: dict[Any, Any]) -> tuple[bytes, Any]:
        if all(type(key) is str for key in value):
            raw, copies = self._named(value, "[{!r}]", self._text)
            return self.place(b'{"dict":%b}' % raw), copies if copies is not value else dict(value)
        return self._map(value)

    def _map(self, value: dict[Any, Any]) -> tuple[bytes, Any]:
        pairs: list[bytes] = []
        made: dict[Any, Any] = {}
        for key, part in value.items():
            step = f"[{_short(key)}]"
            try:
                (key_node, key_copy), (node, copy) = self.walk(key), self.walk(part)
            except Refused as refused:
                refused.steps.append(step)
                raise
            pairs.append(b"[%b,%b]" % (key_node, node))
            made[key_copy] = copy
        if len(made) != len(value):
            raise Refused("two of its keys could not be told apart when read back")
        return self.place(b'{"map":[%b]}' % b",".join(pairs)), made

    def _leaf(self, value: Any, leaf: Leaf) -> tuple[bytes, Any]:
        try:
            payload = leaf.pack(value)
            raw = to_json(payload)
            copy = leaf.unpack(from_json(raw))
            exact = type(copy) is type(value) and leaf.pack(copy) == payload
        except (Unfit, UnicodeEncodeError) as unfit:
            raise Refused(str(unfit)) from None
        if not exact:
            raise Refused(f"this {type(value).__name__} would come back as {copy!r}")
        self.count(raw)
        return self.place(b'{"%b":%b}' % (leaf.tag.encode(), raw)), copy

    def _enum(self, value: enum.Enum) -> tuple[bytes, Any]:
        name = cast("str", self.known.name_of(type(value)))
        of = member_of(value)
        if read_enum(type(value), of) is not value:
            raise Refused(f"the member {of!r} of {name} cannot be found again")
        return b'{"enum":%b}' % to_json([name, of]), value

    def _object(self, value: Any) -> tuple[bytes, Any]:
        shape = cast("Shape", self.known.shape(class_of(value)))
        parts = parts_of(shape, value)
        node = b'{"%b":[%b' % (shape.tag.encode(), _field_key(shape.name))
        copies: list[dict[str, Any]] = []
        for part in parts:
            raw, copy = self._named(part, ".{}", _field_key)
            node += b"," + raw
            copies.append(copy)
        node += b"]}"
        if shape.faithful and not self.copying:
            return self.place(node), value
        return self.place(node), _rebuilt(shape, value, copies)


@functools.lru_cache(maxsize=4096)
def _field_key(name: str) -> bytes:
    """Names of classes and fields are few and repeated often."""
    return to_json(name)


def parts_of(shape: Shape, value: Any) -> Parts:
    """Return the parts of an object, without empty ones at the end."""
    try:
        parts = shape.apart(value)
    except Misfit as misfit:
        raise Refused(str(misfit)) from None
    except Exception as error:
        raise Refused(f"the fields of a {shape.name} cannot be read: {error!r}") from None
    while len(parts) > 1 and not parts[-1]:
        parts = parts[:-1]
    return parts


def _rebuilt(shape: Shape, value: Any, copies: list[dict[str, Any]]) -> Any:
    """Return the object as the reader would give it, proven to have exactly its original parts."""
    try:
        made = shape.build(copies)
        exact = type(made) is type(value) and _are(parts_of(shape, made), copies)
    except Misfit as misfit:
        raise Refused(str(misfit)) from None
    except Exception as error:
        raise Refused(f"a {shape.name} cannot be rebuilt from its fields: {error}") from None
    if not exact:
        raise Refused(f"a {shape.name} changes its fields when it is rebuilt")
    return made


def _are(parts: Sequence[dict[str, Any]], copies: Sequence[dict[str, Any]]) -> bool:
    """Return whether the rebuilt object has exactly its original parts."""
    return len(parts) == len(copies) and all(
        part.keys() == copy.keys() and all(part[name] is copy[name] for name in part)
        for part, copy in zip(parts, copies, strict=True)
    )


def _short(key: object) -> str:
    return repr(key)[:40]


def why_not(value: object, *, verb: str = "pass") -> str:
    """Return why a value of an unknown class is refused, and the remedy: `pass` or `return`
    others."""
    kind = class_of(value)
    name = kind.__qualname__.rpartition("<locals>.")[2]
    if has_parts(kind):
        return f"the class {name} is not known to the reader; add: holdfast.versioning.register_type({name})"
    if isinstance(value, type):
        return f"{value.__qualname__} is a class, not a value"
    one = f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"
    if callable(value):
        return f"{one} can be called, but not stored"
    if isinstance(value, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        return f"{one} runs once and cannot be stored; {verb} a list"
    for base in (*LEAVES, dict, list, tuple, set, frozenset, str):
        if isinstance(value, base):
            return f"{one} would come back as {base.__name__}; convert it: {base.__name__}(...)"
    return (
        f"{one} cannot be stored; {verb} plain data, a dataclass, a msgspec Struct or a pydantic "
        "model, and take clients with holdfast.resource(...)"
    )
