"""Stored data may be anything. Reading it gives a value, `Corrupt` or `ClassChanged`, and runs nothing."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
import textwrap
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from holdfast._engine.values.chunks import Values
from holdfast._engine.values.class_registry import Known
from holdfast._engine.values.codec import decode, encode
from holdfast.errors import ClassChanged, Corrupt, NotSerializable

KNOWN = Known()


@KNOWN.register
class Color(enum.Enum):
    RED = 1


@KNOWN.register
@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


HOSTILE = [
    b"",
    b"{",
    b"{}",
    b'{"plain":1,"dict":{}}',
    b'{"nosuchtag":1}',
    b'{"object":["Point"]}',
    b'{"object":["Point",[1]]}',
    b'{"object":["Point",{"x":1},{}]}',
    b'{"object":[["Point"],{}]}',
    b'{"object":"Point"}',
    b'{"set":[[1]]}',
    b'{"frozenset":{"a":1}}',
    b'{"map":[[1]]}',
    b'{"map":[[[1],2]]}',
    b'{"map":[1]}',
    b'{"dict":[1]}',
    b'{"tuple":1}',
    b'{"int":"1e9"}',
    b'{"int":"' + b"9" * 5000 + b'"}',
    b'{"int":" 1"}',
    b'{"int":"\xd9\xa1"}',
    b'{"float":"1"}',
    b'{"bytes":"?"}',
    b'{"bytes":1}',
    b'{"decimal":"x"}',
    b'{"uuid":"x"}',
    b'{"datetime":["2026-01-01T00:00:00","../../etc/passwd",0]}',
    b'{"datetime":["2026-01-01T00:00:00","os",0]}',
    b'{"datetime":["2026-01-01T00:00:00",["fixed",[9,0,0],null],0]}',
    b'{"datetime":["2026-01-01T00:00:00",["shell",[0,0,0],null],0]}',
    b'{"datetime":["now",null,0]}',
    b'{"datetime":["2026-01-01T00:00:00",null,7]}',
    b'{"time":["25:00:00",null,0]}',
    b'{"date":"yesterday"}',
    b'{"timedelta":[1e9,0,0]}',
    b'{"timedelta":[9999999999,0,0]}',
    b'{"chunk":1}',
    b'{"list":1}',
    b'{"chunk":-1}',
    b'{"chunk":true}',
    b'{"chunk":"1"}',
    b'{"chunk":[1]}',
    b'{"list":null}',
    b'"\\ud800"',
    b"1" * 5000,
    b"1e999",
    b"[" * 100_000,
    b"[" * 65 + b"]" * 65,
    b'{"tuple":[' * 400 + b"]}" * 400,
    b"\xff",
    b"null null",
    b'{"enum":["Color",[["RED"]]]}',
    b'{"object":["Ghost",{"x":{"nosuchtag":1}}]}',
]
UNFIT = [
    b'{"object":["os.system",{"x":1}]}',
    b'{"object":["builtins.eval",{}]}',
    b'{"object":["Point",{"z":1,"x":1}]}',
    b'{"object":["Point",{}]}',
    b'{"object":["Color",{}]}',
    b'{"model":["Point",{"x":1}]}',
    b'{"enum":["Color","BLUE"]}',
    b'{"enum":["Color","__class__"]}',
    b'{"enum":["Color",1]}',
    b'{"enum":["Point","x"]}',
    b'{"enum":["Color",["RED"]]}',
]
"""Whole, and not what today's classes take."""


@pytest.mark.parametrize("node", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_nodes_are_corrupt(node):
    with pytest.raises(Corrupt):
        decode(node, KNOWN)
    with pytest.raises(Corrupt):
        Values(lambda n: {}, KNOWN, next_chunk=100).decode(node)


@pytest.mark.parametrize("node", UNFIT, ids=range(len(UNFIT)))
def test_what_todays_class_cannot_take_is_not_damage(node):
    with pytest.raises(ClassChanged):
        decode(node, KNOWN)
    with pytest.raises(ClassChanged):
        Values(lambda n: {}, KNOWN, next_chunk=100).decode(node)


def test_an_unknown_class_is_named_with_the_line_to_add():
    with pytest.raises(ClassChanged, match="a stored Ghost .* this process does not know it") as it:
        decode(b'{"object":["Ghost",{}]}', KNOWN)
    assert "holdfast.versioning.register_type(Ghost)" in it.value.remedy


trees = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 200),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            ["Point", "Color", "RED", "x", "y", "nan", "1", "AAAA", "2026-01-01", "fixed", "prev"]
        ),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                "plain dict map tuple set frozenset bytes bytearray int float decimal uuid datetime date "
                "time timedelta object model enum chunk list x y prev len items".split()
            ),
            inner,
            max_size=2,
        ),
        st.builds(
            lambda tag, name, body: {tag: [name, body]},
            st.sampled_from(["object", "model", "enum"]),
            st.sampled_from(["Point", "Color"]),
            inner,
        ),
    ),
    max_leaves=10,
)


@given(trees, st.lists(trees, max_size=4))
@settings(max_examples=500, deadline=None)
def test_fuzzed_nodes_give_values_or_corrupt(tree, chunks):
    store = {n: msgspec.json.encode(chunk) for n, chunk in enumerate(chunks, 1)}
    values = Values(lambda n: {n: store[n]}, KNOWN, next_chunk=len(store) + 1)
    try:
        value = values.decode(msgspec.json.encode(tree))
    except (Corrupt, ClassChanged):
        return
    try:
        encode(value, "it", KNOWN)  # what was read can be written
    except NotSerializable:
        pass


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_noise_is_corrupt_or_a_value(raw):
    try:
        decode(raw, KNOWN)
    except Corrupt:
        pass


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_byte_is_corrupt_or_a_value(data):
    value = {"a": Point((1, b"x"), {Color.RED: 2.5}), "list": [{"n": i} for i in range(30)]}
    node = bytearray(encode(value, "it", KNOWN))
    at = data.draw(st.integers(0, len(node) - 1))
    node[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(node), KNOWN)
    except (Corrupt, ClassChanged):
        pass


def test_reading_triggers_no_import_exec_os_or_socket_event():
    """In a process of its own: an audit hook cannot be taken away again."""
    script = textwrap.dedent("""
        import sys
        from tests.core.test_codec_hostile import HOSTILE, KNOWN, UNFIT, Point, Color
        from holdfast._engine.values.chunks import Values
        from holdfast._engine.values.codec import encode
        from holdfast.errors import ClassChanged, Corrupt
        import datetime as dt, decimal, uuid, zoneinfo
        good = [Point((1, {2}), {Color.RED: b"x"}), decimal.Decimal("1.5"), uuid.UUID(int=5),
                dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), 10**30]
        nodes = HOSTILE + UNFIT + [encode(value, "it", KNOWN) for value in good]
        store = {1: b'{"list":1}', 2: b'{"object":["os.system",{"x":"id"}]}', 3: b'{"prev":3,"len":1,"items":[]}'}
        values = Values(lambda n: {n: store[n]}, KNOWN, next_chunk=9)
        nodes += [b'{"chunk":%d}' % n for n in store] + [b'{"list":%d}' % n for n in store]
        for node in nodes:                   # once without: the table of time zones is read once
            try: values.decode(node)
            except (Corrupt, ClassChanged): pass
        seen, on = [], True
        FORBIDDEN = ("import", "exec", "compile", "os.", "open", "socket.", "subprocess.", "pickle.",
                     "marshal.", "ctypes.", "code.", "shutil.", "builtins.")
        def hook(event, args):
            if on and event.startswith(FORBIDDEN): seen.append((event, args))
        sys.addaudithook(hook)
        for node in nodes:
            try: values.decode(node)
            except (Corrupt, ClassChanged): pass
        on = False
        assert not seen, seen
        on = True
        compile("1", "x", "eval")
        assert seen, "the hook works"
""")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(["src", ".", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_references_cannot_go_round_or_explode():
    bomb = {1: msgspec.json.encode({"plain": ["x" * 1000] * 1000})}
    for n in range(2, 60):
        bomb[n] = msgspec.json.encode([{"chunk": n - 1}] * 2)
    values = Values(lambda n: {n: bomb[n]}, KNOWN, next_chunk=60)
    with pytest.raises(Corrupt, match="expands to more than"):
        values.decode(b'{"chunk":59}')
    for loop in (
        b'[{"chunk":1}]',
        b'{"chunk":1}',
        b'{"prev":1,"len":0,"items":[]}',
        b'[{"list":1}]',
    ):
        around = Values({1: {1: loop}}.__getitem__, KNOWN, next_chunk=2)
        for node in (b'{"chunk":1}', b'{"list":1}'):
            with pytest.raises(Corrupt):
                around.decode(node)
