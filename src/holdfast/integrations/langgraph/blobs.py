"""The stored form of channel values: each large part once per thread, identified by its digest.

A value becomes a node, which is plain data:

"…"              a separate value, by its digest (see keys.py)
"…:id"           a separate message. It is stored without its id, which may be assigned later
[type, bytes]    a small value in the serializer's form; [type] if there are no bytes
{"l": [nodes]}   a list, element by element: a conversation shares its messages with the next one
{"d": {…}}       a dictionary that contains such a list
{"g": [nodes]}   a long list without messages, in groups of elements
{"k": [nodes]}   a long dictionary without messages, in groups of items
{"s": [name, node]}, {"v": node}    a `Send`, the snapshot of a delta channel
{"j": "…"}       metadata that need JSON: lone surrogates, numbers of more than 64 bits
"""

from __future__ import annotations

import copy
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import types as serde_types
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Send

import holdfast
from holdfast.integrations.langgraph.keys import digest

INLINE_BYTES = 192
"""A smaller value costs less inline than in a separate row."""
GROUP = 128
"""The size of groups in which a longer list or dictionary without messages is stored."""
_DEPTH = 6
_SNAPSHOT: type | None = getattr(serde_types, "_DeltaSnapshot", None)
_SCALARS = (int, float, bool, type(None))

_DIGEST = 22
SEEN = 4096
"""How many messages are remembered; if one checkpoint has more, twice its number."""

Node = Any


def check_serializer(serde: Any) -> None:
    """Refuse a serializer that would pickle."""
    inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    if getattr(inner, "pickle_fallback", False):
        raise holdfast.errors.UsageError(
            "a serializer with pickle_fallback=True is refused: unpickling can run code; "
            "omit it, and use classes that msgpack supports in your state"
        )


def _check_type(kind: str) -> str:
    if kind.partition("+")[0] == "pickle":
        raise holdfast.errors.UsageError("pickled values are neither stored nor loaded")
    return kind


class Message(NamedTuple):
    """A message that was packed before, with its content at that time."""

    message: BaseMessage
    said: dict[str, Any]
    node: str
    ref: str


class Seen:
    """Recently packed messages: each checkpoint contains the whole conversation again. A message
    that was mutated since is packed again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: OrderedDict[int, Message] = OrderedDict()

    def get(self, message: BaseMessage) -> Message | None:
        """Return the packed form of a message; None if it is unknown or was changed."""
        found = self._messages.get(id(message))
        if found is None or found.message is not message or found.said != message.__dict__:
            return None
        return found

    def add(self, message: BaseMessage, node: str, at_once: int) -> None:
        """Remember a message with its current content; `at_once` messages are packed together."""
        said = copy.deepcopy(message.__dict__)
        with self._lock:
            self._messages[id(message)] = Message(message, said, node, node[:_DIGEST])
            while len(self._messages) > max(SEEN, 2 * at_once):
                self._messages.popitem(last=False)


class Packer:
    """Makes nodes of values, and collects the separate values."""

    def __init__(self, serde: SerializerProtocol, seen: Seen) -> None:
        self._serde = serde
        self._seen = seen
        self._splits = not isinstance(
            serde, EncryptedSerializer
        )  # Equal values have different ciphertexts.
        self._apart: dict[str, tuple[str, bytes] | BaseMessage] = {}

    def element(self, ref: str) -> tuple[str, bytes]:
        """Return the type and the bytes of a separate value, from which its digest was computed."""
        found = self._apart[ref]
        if isinstance(found, BaseMessage):  # Packed before, and usually stored.
            found = self._serde.dumps_typed(_bare(found))
            if _digest(*found) != ref:
                raise holdfast.errors.UsageError(
                    "a message was changed while its checkpoint was stored; change a copy of "
                    "it, and return that from the node"
                )
        kind, data = found
        return kind, bytes(data)

    def needed(self) -> frozenset[str]:
        """Return the digests of the separate values."""
        return frozenset(self._apart)

    def pack(self, value: Any) -> Node:
        """Return the node of a value."""
        split = self._split(value, 0) if self._splits else None
        return self._leaf(value) if split is None else split

    def _split(self, value: Any, depth: int) -> Node | None:
        """Return the node of a value that contains a list worth splitting; otherwise None."""
        kind = type(value)
        if depth == _DEPTH:
            return None
        if kind is list:
            if not value or isinstance(value[0], _SCALARS):
                return None
            if len(value) > GROUP and not _shares(value):
                return {"g": [self._dumped(part) for part in _groups(value)]}
            return {"l": [self._part(it, depth) for it in value]}
        if kind is dict:
            return self._split_dict(value, depth)
        if kind is Send and getattr(value, "timeout", None) is None:
            inner = self._split(value.arg, depth + 1)
            return None if inner is None else {"s": [value.node, inner]}
        if _SNAPSHOT is not None and kind is _SNAPSHOT:
            inner = self._split(value.value, depth + 1)
            return None if inner is None else {"v": inner}
        return None

    def _split_dict(self, value: dict[Any, Any], depth: int) -> Node | None:
        if not all(type(key) is str for key in value):
            return None
        if len(value) > GROUP and not _shares(value.values()):
            return {"k": [self._dumped(dict(part)) for part in _groups([*value.items()])]}
        split = {key: self._split(it, depth + 1) for key, it in value.items()}
        if not any(it is not None for it in split.values()):
            return None
        return {
            "d": {key: self._leaf(value[key]) if it is None else it for key, it in split.items()}
        }

    def _part(self, value: Any, depth: int) -> Node:
        if isinstance(value, BaseMessage):  # Long lists are mostly of these.
            return self._message(value)
        split = self._split(value, depth + 1)
        return self._leaf(value) if split is None else split

    def _leaf(self, value: Any) -> Node:
        if isinstance(value, BaseMessage) and self._splits:
            return self._message(value)
        return self._dumped(value)

    def _message(self, message: BaseMessage) -> Node:
        found = self._seen.get(message)
        if found is not None:
            self._apart[found.ref] = message
            return found.node
        node = self._dumped(_bare(message))
        if type(node) is not str:
            return _inline(*self._serde.dumps_typed(message))
        node = f"{node}:{message.id}" if message.id else node
        self._seen.add(message, node, len(self._apart))
        return node

    def _dumped(self, value: Any) -> Node:
        kind, data = self._serde.dumps_typed(value)
        _check_type(kind)
        if len(data) < INLINE_BYTES:
            return _inline(kind, data)
        ref = _digest(kind, data)
        self._apart[ref] = (kind, data)
        return ref


def _shares(values: Iterable[Any]) -> bool:
    """Return whether to store elements one by one, because other values share them."""
    kinds = set(map(type, values))
    return any(kind in (Send, _SNAPSHOT) or issubclass(kind, BaseMessage) for kind in kinds)


def _groups(elements: list[Any]) -> list[list[Any]]:
    return [elements[at : at + GROUP] for at in range(0, len(elements), GROUP)]


def _inline(kind: str, data: bytes) -> Node:
    return [kind, bytes(data)] if data else [kind]


def _digest(kind: str, data: bytes) -> str:
    return digest(kind.encode() + b"\0" + data, _DIGEST)


def _bare(message: BaseMessage) -> BaseMessage:
    """Return a message without its id."""
    return message.model_copy(update={"id": None}) if message.id else message


class Unpacker:
    """Makes values of nodes."""

    def __init__(
        self, serde: SerializerProtocol, fetch: Callable[[str], tuple[str, bytes]]
    ) -> None:
        self._serde = serde
        self._fetch = fetch

    def unpack(self, node: Node) -> Any:
        """Return the value of a node, new each time."""
        if isinstance(node, str):
            return self._apart(node[:_DIGEST], node[_DIGEST + 1 :])
        if isinstance(node, list):
            return self._serde.loads_typed((_check_type(node[0]), node[1] if node[1:] else b""))
        ((sign, inner),) = node.items()
        if sign == "l":
            return [self.unpack(it) for it in inner]
        if sign == "d":
            return {key: self.unpack(it) for key, it in inner.items()}
        if sign == "g":
            return [it for part in inner for it in self.unpack(part)]
        if sign == "k":
            return {key: it for part in inner for key, it in self.unpack(part).items()}
        if sign == "s":
            return Send(inner[0], self.unpack(inner[1]))
        if sign == "j":
            return json.loads(inner)
        if sign == "v" and _SNAPSHOT is not None:
            return _SNAPSHOT(self.unpack(inner))
        raise holdfast.errors.UsageError(
            f"this version of langgraph-checkpoint cannot read a value of kind {sign!r}; install "
            "the one that wrote it, or a later one"
        )

    def _apart(self, ref: str, message_id: str) -> Any:
        kind, data = self._fetch(ref)
        value = self._serde.loads_typed((_check_type(kind), data))
        if message_id:
            value.id = message_id
        return value


def refs(node: Node) -> Iterator[str]:
    """Yield the digests of the separate values that a node needs."""
    if isinstance(node, str):
        yield node[:_DIGEST]
    elif isinstance(node, dict):
        ((sign, inner),) = node.items()
        if sign == "v":
            yield from refs(inner)
        elif sign == "s":
            yield from refs(inner[1])
        elif sign != "j":
            for it in inner.values() if sign == "d" else inner:
                if isinstance(it, str):
                    yield it[:_DIGEST]
                else:
                    yield from refs(it)
