"""Each message once: growth, sharing, restarts, and the same values as without chunks."""

from __future__ import annotations

import copy as copying
import dataclasses
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from holdfast._engine.values import chunks
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.class_registry import Known
from holdfast._engine.values.codec import same
from holdfast._engine.values.digest import digest
from holdfast._engine.values.opaque_values import LenientValues
from holdfast.errors import Corrupt, NotSerializable
from tests.core.test_codec import KNOWN as TYPES, values as any_values

KNOWN = Known()


@KNOWN.register
@dataclasses.dataclass
class Message:
    role: str
    text: str
    n: int = 0


@KNOWN.register
@dataclasses.dataclass
class Chat:
    messages: list[Any]
    turn: int = 0
    note: Any = None


class Shelf:
    """A store of chunks: what a database is to `Values`."""

    def __init__(self, known: Known = KNOWN, near: int = 32) -> None:
        self.known = known
        self.near = near
        self.kept: dict[int, bytes] = {}
        self.fetches = 0
        self.values = self.reopen(1)

    def reopen(self, next_chunk: int | None = None) -> Values:
        self.values = Values(self.fetch, self.known, next_chunk or self.values.next_chunk)
        return self.values

    def fetch(self, number: int) -> dict[int, bytes]:
        self.fetches += 1
        return {
            n: self.kept[n] for n in range(number - self.near, number + self.near) if n in self.kept
        }

    def put(self) -> int:
        """Store what is fresh; how many bytes that were."""
        fresh = self.values.take_fresh()
        for number, raw in fresh:
            assert number not in self.kept
            assert 0 < number < self.values.next_chunk
            self.kept[number] = raw
        return sum(len(raw) for _, raw in fresh)

    def write(self, value: Any) -> tuple[bytes, int]:
        node = self.values.encode(value, "it")
        return node, self.put()


def text(seed: int, length: int = 1000) -> str:
    return random.Random(seed).randbytes(length // 2).hex()


def as_dict(seed: int) -> Any:
    return {"role": "assistant", "content": text(seed)}


def as_rich_dict(seed: int) -> Any:
    return {
        "role": "tool",
        "content": text(seed),
        "meta": {"n": seed, "ok": True},
        "tags": ["a", "b"],
    }


def as_parts(seed: int) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text(seed)}]}


def as_small_fields(seed: int) -> Any:
    return {"role": "tool", **{f"k{n}": text(seed * 30 + n, 40) for n in range(22)}}


def as_message(seed: int) -> Any:
    return Message("assistant", text(seed), seed)


def converse(shelf: Shelf, make: Any, turns: int, *, restart: int = 0) -> tuple[int, int]:
    """An agent's loop as the runtime performs it; bytes of messages, bytes that were stored."""
    content = stored = 0
    state = Chat([])
    for turn in range(turns):
        message = make(turn)
        content += len(msgspec.json.encode(message))
        values = shelf.values
        arguments = {"messages": state.messages}
        stored += len(values.encode(arguments, "arguments"))
        assert values.digest(arguments) == values.digest(copying.copy(arguments))
        node, message = values.copy(message, "result")
        stored += len(node)
        state.messages.append(message)
        state.turn = turn
        node, state = values.copy(state, "state")
        stored += len(node) + shelf.put()
        if restart and turn % restart == restart - 1:
            state = shelf.reopen().decode(node)
    return content, stored


@pytest.mark.parametrize("make", [as_dict, as_rich_dict, as_parts, as_small_fields, as_message])
def test_a_conversation_takes_little_more_than_its_messages(make):
    content, stored = converse(Shelf(), make, 200)
    assert stored <= 1.30 * content
    content, stored = converse(Shelf(), make, 12)
    assert stored <= 1.40 * content


def test_a_thousand_turns_stay_linear():
    content, stored = converse(Shelf(), as_dict, 1000)
    assert stored <= 1.25 * content


@pytest.mark.parametrize("make", [as_dict, as_message])
def test_a_resumed_process_goes_on_where_the_list_was(make):
    content, stored = converse(Shelf(), make, 120, restart=5)
    assert stored <= 1.30 * content


def test_after_a_restart_nothing_is_stored_again():
    shelf = Shelf()
    messages = [as_dict(n) for n in range(40)] + [as_message(99)]
    node, _ = shelf.write(Chat(messages))
    values = shelf.reopen()
    chat = values.decode(node)
    assert shelf.write(chat) == (node, 0)
    assert shelf.write(messages[5])[1] == 0
    assert shelf.write({"again": messages[7]["content"]})[1] == 0


def test_a_result_is_found_again_wherever_it_stands():
    shelf = Shelf()
    reply, first = shelf.write(text(1))
    assert first > 900
    for value in (
        text(1),
        [text(1)],
        {"role": "user", "content": text(1)},
        Message("user", text(1)),
        (1, {"x": [Message("user", text(1))]}),
    ):
        node, more = shelf.write(value)
        assert more + len(node) < 200, value
    assert reply == b'{"chunk":1}'


def test_the_same_list_is_the_same_chunk():
    shelf = Shelf()
    messages = [as_dict(n) for n in range(30)]
    node, _ = shelf.write(messages)
    assert shelf.write(copying.deepcopy(messages)) == (node, 0)
    assert shelf.write({"messages": messages})[0] == b'{"dict":{"messages":%b}}' % node
    assert node in shelf.write(Chat(messages))[0]


def test_branches_of_a_list_share_what_they_have_in_common():
    shelf = Shelf()
    base = [as_dict(n) for n in range(50)]
    shelf.write(base)
    stored = 0
    for turn in range(50, 80):  # each turn asks with an extra line that is not kept
        _, more = shelf.write([*base, {"role": "system", "content": f"turn {turn}"}])
        base.append(as_dict(turn))
        stored += more + shelf.write(base)[1]
    assert stored < 30 * (1000 + 400)
    shorter, more = shelf.write(base[:50])
    assert more == 0
    assert same(shelf.reopen().decode(shorter), base[:50])


def test_numbers_at_the_end_of_a_list_are_not_taken_for_longer_ones():
    shelf = Shelf()
    for last in (1, 12, 123, 1.5, 1, 12):
        value = [*range(300), last]
        node, _ = shelf.write(value)
        assert same(shelf.values.decode(node), value)
        assert shelf.values.digest(value) == digest(value)


def test_look_alikes_do_not_pass_for_an_earlier_list():
    class Loud(str):
        __slots__ = ()

    shelf = Shelf()
    base = [{"n": 1, "t": "x" * 50} for _ in range(40)]
    shelf.write(base)
    for changed in (True, 1.0, (1,), Loud("1")):
        other = copying.deepcopy(base)
        other[3]["n"] = changed
        if type(changed) is Loud:
            with pytest.raises(NotSerializable):
                shelf.write(other)
            continue
        node, _ = shelf.write(other)
        assert same(shelf.reopen().decode(node), other)
        shelf.write(base)


def test_a_refused_value_leaves_no_trace():
    shelf = Shelf()
    values = shelf.values
    shelf.write([as_dict(n) for n in range(20)])
    before = values.next_chunk
    for bad in (
        {"a": text(1), "b": object()},
        [[as_dict(n) for n in range(30)], (object(),)],
        ["x" * 600, "\ud800"],
    ):
        with pytest.raises(NotSerializable) as caught:
            values.encode(bad, "arguments")
        assert caught.value.path.startswith("arguments[")
    assert values.next_chunk == before
    assert values.take_fresh() == []
    _, more = shelf.write({"a": text(77)})
    assert more > 1000  # it was not taken for stored


def test_copies_share_nothing_mutable():
    shelf = Shelf()
    chat = Chat([as_dict(0), {"k": [1, {"x": (1, [2])}]}], note={"deep": [{"er": [1]}]})
    long = Chat([{"n": n, "l": [n]} for n in range(100)])
    for value in (chat, long, {"a": [chat, long]}):
        original = copying.deepcopy(value)
        node, copied = shelf.values.copy(value, "it")
        shelf.put()
        once, twice = shelf.values.decode(node), shelf.values.decode(node)
        for other in (copied, once, twice):
            assert same(other, original, KNOWN)
        for spoilt in (copied, once):
            spoil(spoilt)
            assert same(value, original, KNOWN)
            assert same(twice, original, KNOWN)
        assert same(shelf.values.decode(node), original, KNOWN)


def spoil(value: Any) -> None:
    """Change every mutable container inside."""
    if isinstance(value, Chat):
        spoil(value.messages)
        spoil(value.note)
        value.turn = -1
    elif isinstance(value, (list, tuple)):
        for part in value:
            spoil(part)
        if isinstance(value, list):
            value.append("spoilt")
    elif isinstance(value, dict):
        for part in value.values():
            spoil(part)
        value["spoilt"] = True


longer = st.one_of(
    any_values, st.lists(any_values, max_size=30), st.text(max_size=30).map(lambda t: t * 60)
)


@given(st.lists(longer, max_size=5), st.integers(16, 200))
@settings(max_examples=120, deadline=None)
def test_chunked_values_come_back_the_same(sequence, limit):
    kept: dict[int, bytes] = {}
    values = Values(lambda n: {n: kept[n]}, TYPES, inline_limit=limit)
    nodes = []
    for value in sequence:
        node, copied = values.copy(value, "it")
        assert same(copied, value, TYPES)
        assert values.digest(value) == digest(value, TYPES)
        kept |= values.take_fresh()
        nodes.append(node)
        assert values.encode(value, "it") == node
        assert values.take_fresh() == []
    later = Values(lambda n: {n: kept[n]}, TYPES, values.next_chunk, limit)
    for node, value in zip(nodes, sequence, strict=True):
        again = later.decode(node)
        assert same(again, value, TYPES)
        assert later.digest(again) == digest(value, TYPES)
        later.encode(again, "it")


steps = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 4)),
    st.tuples(st.just("cut"), st.integers(1, 30)),
    st.tuples(st.just("change"), st.integers(0, 60)),
    st.tuples(st.just("restart"), st.just(0)),
)


@given(st.lists(steps, max_size=25), st.booleans())
@settings(max_examples=60, deadline=None)
def test_lists_that_grow_shrink_and_change(script, typed):
    shelf = Shelf()
    make = as_message if typed else as_dict
    current, node = [], b'{"plain":[]}'
    for turn, (what, size) in enumerate(script):
        if what == "grow":
            current += [make(turn * 10 + n) for n in range(size)]
        elif what == "cut":
            del current[-size:]
        elif what == "change" and current:
            current[size % len(current)] = make(1000 + turn)
        elif what == "restart":
            current = shelf.reopen().decode(node)
        node, _ = shelf.write(current)
        assert same(shelf.values.decode(node), current, KNOWN)
        assert shelf.values.digest(current) == digest(current, KNOWN)


def test_a_chain_of_thousands_is_read_without_recursion():
    shelf = Shelf(near=4000)
    current: list[Any] = []
    node = b""
    for n in range(5000):
        current.append(n)
        node, _ = shelf.write(current)
    assert len(shelf.kept) > 4500
    assert shelf.reopen().decode(node) == current
    assert shelf.fetches < 20


def test_damage_is_corrupt():
    shelf = Shelf()
    node, _ = shelf.write([as_dict(n) for n in range(30)])
    for number, raw in list(shelf.kept.items()):
        for damaged in (None, b"{}", b'{"chunk":1}', raw[:-1], b'{"prev":null,"len":1,"items":[]}'):
            shelf.kept[number] = damaged or b""
            if damaged is None:
                del shelf.kept[number]
            with pytest.raises(Corrupt):
                shelf.reopen().decode(node)
        shelf.kept[number] = raw


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(chunks, "CACHE_MAX_BYTES", 10_000)
    shelf = Shelf()
    for n in range(60):
        shelf.write([f"{n} {text(n * 100 + k, 80)}" for k in range(20)])
    assert len(shelf.values.trunks) <= 8
    assert shelf.values._recent_bytes <= 10_000
    assert sum(map(len, shelf.values._recent.values())) == shelf.values._recent_bytes


def test_fresh_chunks_can_be_read_before_they_are_stored():
    values = Values(lambda n: {}, KNOWN)
    message = as_dict(1)
    node = values.encode([message] * 20, "it")
    assert values.decode(node) == [message] * 20
    values.take_fresh()
    assert values.decode(node) == [message] * 20


def test_limits_hold_for_shared_parts_too():
    shelf = Shelf()
    big = "x" * (1024 * 1024)
    with pytest.raises(NotSerializable, match="64 MiB"):
        shelf.values.encode([[big] * 40, [big] * 40], "it")


@settings(max_examples=150, deadline=None)
@given(any_values)
def test_what_is_of_unknown_classes_is_written_again_as_it_was(value: Any) -> None:
    stored = Values(lambda _: {}, known=TYPES)
    node = stored.encode(value, "it")
    shelf = dict(stored.take_fresh())
    here = LenientValues(lambda number: {number: shelf[number]}, next_chunk=stored.next_chunk)
    carried = here.decode_leniently(node)
    assert here.encode(carried, "it") == node
    assert here.take_fresh() == []
    assert here.digest(carried) == stored.digest(value)
