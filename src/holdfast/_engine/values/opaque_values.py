"""Values of classes that this process does not know: read and written unchanged. Pure.

A process that changes one part of a stored value (a fork with another input) writes the other parts
again, without the user's code. An object of a class that is not known is
read as a stand-in: it has the name and the parts, and none of the behaviour. It is written, and
digested, as the object itself would be.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast._engine.values.chunks import ChunkReader, Values
from holdfast._engine.values.class_codecs import Parts, Shape
from holdfast._engine.values.class_registry import KNOWN, Known, Upgrade
from holdfast._engine.values.digest import digest
from holdfast._engine.values.node_parts import read_enum
from holdfast.errors import ClassChanged, NotSerializable

_NO_FLAG = 1 << 1000
"""An enum of flags has at least one; this one is in no combination."""


_enum: Callable[..., type] = cast("Any", enum.Enum)
_flag: Callable[..., type] = cast("Any", enum.Flag)


class StandIn:
    """An object of a class that is not known here."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts


class _Shape:
    """How a stand-in is taken apart: it is its parts."""

    faithful = True

    def __init__(self, cls: type, name: str, tag: str) -> None:
        self.cls = cls
        self.name = name
        self.tag = tag

    def apart(self, value: Any) -> Parts:
        parts: Parts = value.parts
        return parts

    def field_names(self) -> Sequence[str]:
        return ()

    def build(self, parts: Sequence[Mapping[str, object]]) -> object:
        return self.cls(tuple(dict(part) for part in parts))


class Strangers(Known):
    """The known classes, and a stand-in for each unknown one."""

    def __init__(self, known: Known = KNOWN) -> None:
        super().__init__()
        self._known = known
        self._met: dict[tuple[str, str], type] = {}

    def by_name(self, name: str) -> type | None:
        return self._known.by_name(name)

    def upgrade(self, cls: type) -> Upgrade | None:
        return self._known.upgrade(cls)

    def name_of(self, cls: type) -> str | None:
        return self._known.name_of(cls) or self._names.get(cls)

    def shape(self, cls: type) -> Shape | None:
        return self._shapes.get(cls) or self._known.shape(cls)

    def object(self, name: str, tag: str) -> type:
        """Return the stand-in for a class of objects."""
        cls = self._met.get((name, tag))
        if cls is None:
            cls = self._meet(name, tag, type(name, (StandIn,), {}))
            self._shapes[cls] = _Shape(cls, name, tag)
        return cls

    def enum(self, name: str, member: str) -> type:
        """Return the stand-in for an enum, of which only this member is known."""
        kind = "." + member
        return self._met.get((name, kind)) or self._meet(name, kind, _enum(name, [member]))

    def flag(self, name: str, of: Sequence[str | int]) -> type:
        """Return the stand-in for an enum of flags: these names, and any number beside them."""
        names = [part for part in of if isinstance(part, str)]
        free = sum(part for part in of if isinstance(part, int)).bit_length()
        members = {one: 1 << free + place for place, one in enumerate(names)}
        kind = f"|{'|'.join(names)}|{free}"
        return self._met.get((name, kind)) or self._meet(
            name, kind, _flag(name, members or {"_": _NO_FLAG}, boundary=enum.KEEP)
        )

    def _meet(self, name: str, kind: str, cls: type) -> type:
        self._met[name, kind] = cls
        self._names[cls] = name
        return cls


class LenientReader(ChunkReader):
    """Reads a value of a run, with stand-ins for unknown classes."""

    known: Strangers

    def stranger(self, name: str, tag: str, parts: list[Any], changed: ClassChanged) -> Any:
        if tag != "enum":
            return self.known.object(name, tag)(tuple(parts))
        [of] = parts
        if type(of) is str:
            return read_enum(self.known.enum(name, of), of)
        bits = [of] if type(of) is int else of
        return read_enum(self.known.flag(name, bits), bits)


class LenientValues(Values):
    """The values of a run, for a reader that may not know all classes of the user."""

    def __init__(self, fetch: Callable[[int], Mapping[int, bytes]], next_chunk: int) -> None:
        super().__init__(fetch, Strangers(), next_chunk)

    def decode_leniently(self, node: bytes) -> Any:
        """Return a value, with stand-ins for objects of unknown classes."""
        return LenientReader(self).decode(node)


def has_strangers(value: object) -> bool:
    """Return whether a leniently read value contains a stand-in."""
    try:
        digest(value)
    except NotSerializable:
        return True
    return False
