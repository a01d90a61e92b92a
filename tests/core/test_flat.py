"""The short way gives what the long way gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast._engine.values import chunks, codec, digest
from holdfast._engine.values.chunks import Values
from holdfast.errors import NotSerializable

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=450)
    | st.lists(st.integers(), max_size=2)
)
dicts = st.dictionaries(st.text(max_size=8) | st.integers(0, 3), scalars, max_size=18)


@given(dicts)
def test_the_short_way_gives_what_the_long_way_gives(value: dict[Any, Any]) -> None:
    node, form = chunks.flat_node_of(value), chunks.flat_digest_of(value)
    if node is not None:
        assert node == codec.encode(value, "value")
        assert codec.same(codec.decode(node), value)
    if form is not None:
        assert form == digest.digest(value)


@given(dicts)
def test_values_are_the_same_either_way(value: dict[Any, Any]) -> None:
    def no_chunks(_number: int) -> dict[int, bytes]:
        return {}

    short, long = Values(no_chunks), Values(no_chunks, inline_limit=513)
    node, copy = short.copy(value, "value")
    assert codec.same(copy, value)
    assert copy is not value
    assert codec.same(short.decode(node), long.decode(long.encode(value, "value")))
    assert short.digest(value) == long.digest(value)


def test_small_flat_values_go_the_short_way() -> None:
    assert (
        chunks.flat_node_of({"text": "x" * 150, "n": 1, "ok": True, "at": 1.5, "no": None})
        is not None
    )


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\ud800": 1}])
def test_a_lone_surrogate_is_refused_either_way(value: dict[str, Any]) -> None:
    assert chunks.flat_node_of(value) is None
    with pytest.raises(NotSerializable):
        Values(lambda _number: {}).encode(value, "value")
