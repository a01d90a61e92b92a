"""Values come back exactly, or are refused with the path to what would not."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import functools
import subprocess
import sys
import uuid
import zoneinfo
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, cast

import msgspec
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from holdfast._engine.values.class_registry import Known
from holdfast._engine.values.codec import decode, encode, same
from holdfast._engine.values.digest import digest, seal
from holdfast._engine.values.node_writer import Writer
from holdfast.errors import ClassChanged, NotSerializable, UsageError

KNOWN = Known()


@KNOWN.register
class Color(enum.Enum):
    RED = "red"
    BLUE = 2


@KNOWN.register
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@KNOWN.register
class Right(enum.Flag):
    READ = 1
    WRITE = 2


@KNOWN.register
@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None
    made: int = dataclasses.field(default=0, init=False)

    def __post_init__(self) -> None:
        assert not isinstance(self.x, str), "never called by the reader"


@KNOWN.register
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any = ()


@KNOWN.register
class Record(msgspec.Struct, frozen=True):
    a: Any
    b: Any = None

    def __post_init__(self) -> None:
        if self.a == "built":
            raise AssertionError("never called by the reader")


@KNOWN.register
class Pair(NamedTuple):
    left: Any
    right: Any = 0


@KNOWN.register
class Model(pydantic.BaseModel):
    a: Any = None
    n: int = 3
    tags: list[str] = pydantic.Field(default_factory=lambda: ["new"])
    _secret: int = pydantic.PrivateAttr(default=7)


@KNOWN.register
class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: Any = None


@KNOWN.register
class Root(pydantic.RootModel[list[int]]):
    pass


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.sampled_from([2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**53 + 1, 10**400]),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.decimals().filter(lambda d: not d.is_snan()),  # which no set can hold
    st.uuids(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(),
    st.datetimes(
        timezones=st.sampled_from(
            ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York"]
        ).map(zoneinfo.ZoneInfo)
    ),
    st.datetimes(timezones=st.just(dt.timezone(dt.timedelta(hours=5, minutes=30)))),
    st.sampled_from([*Color, *Level, *Right, Right.READ | Right.WRITE, Right(0)]),
)


def hashables(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        parts,
        st.lists(parts, max_size=3).map(tuple),
        st.lists(parts, max_size=3).map(frozenset),
        st.builds(Frozen, parts, parts),
        st.builds(Pair, parts, parts),
    )


keys = hashables(scalars)


def containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    numbers = st.integers(0, 9)
    return st.one_of(
        st.lists(parts, max_size=4),
        st.lists(parts, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=5), parts, max_size=4),
        st.dictionaries(keys, parts, max_size=3),
        st.sets(keys, max_size=4),
        st.builds(Point, parts.filter(lambda v: not isinstance(v, str)), parts),
        st.builds(Frozen, parts, parts),
        st.builds(Record, parts, parts),
        st.builds(Pair, parts, parts),
        st.builds(Model, a=parts, n=numbers),
        st.builds(Model),
        st.builds(Open, a=parts, more=parts),
        st.builds(Root, st.lists(numbers, max_size=3)),
    )


values = st.recursive(scalars, containers, max_leaves=12)


@given(values)
@settings(max_examples=400, deadline=None)
def test_every_value_comes_back_the_same(value):
    node = encode(value, "it", KNOWN)
    again = decode(node, KNOWN)
    assert same(value, again, KNOWN)
    assert encode(again, "it", KNOWN) == node
    assert digest(again, KNOWN) == digest(value, KNOWN)


@given(values, values)
@settings(max_examples=300, deadline=None)
def test_digests_are_equal_exactly_if_values_are_the_same(a, b):
    assert same(a, b, KNOWN) == (digest(a, KNOWN) == digest(b, KNOWN))


@given(
    st.lists(
        st.one_of(st.integers(0, 1), st.booleans(), st.sampled_from([0.0, -0.0, 1.0, "1", None])),
        max_size=3,
    )
)
def test_exact_types_count(parts):
    forms = [parts, tuple(parts), {"a": parts}, {"a": tuple(parts)}, frozenset(parts), set(parts)]
    for a in forms:
        for b in forms:
            assert same(a, b) == (a is b)
            assert (digest(a) == digest(b)) == (a is b)


def test_insertion_order_is_kept_and_does_not_count():
    a, b = {"x": 1, "y": (2,)}, {"y": (2,), "x": 1}
    assert list(decode(encode(b))) == ["y", "x"]
    assert same(a, b)
    assert digest(a) == digest(b)
    assert digest({"x": 1, "y": 2}) == digest({"y": 2, "x": 1})


def test_digests_do_not_depend_on_the_hash_seed():
    line = (
        "from holdfast._engine.values.digest import digest;"
        "print(digest({'s': {'a','b','c',(1,'x')}, 'f': frozenset('xyz')}).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", line],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_long_lists_and_texts_are_told_apart():
    long = [{"n": i, "text": "x" * 600} for i in range(40)]
    changed = [dict(m) for m in long]
    changed[20]["text"] = "x" * 599 + "y"
    assert digest(long) == digest([dict(reversed(m.items())) for m in long])
    assert digest(long) != digest(changed)
    assert digest(long) != digest(long[:-1])
    assert digest([long]) != digest(long)
    assert digest(tuple(long)) != digest(long)
    assert digest([list(range(300)), 1]) != digest([list(range(299)), 299, 1])


def test_users_data_is_never_a_tag():
    for data in (
        {"object": ["Point", {"x": 1}]},
        {"plain": 1},
        {"chunk": 1},
        {"dict": {"a": (1,)}},
        {"enum": ["Color", "RED"]},
    ):
        for value in (data, [data], {"k": data, "t": (1,)}, (data,), Point(data)):
            assert same(decode(encode(value, "it", KNOWN), KNOWN), value, KNOWN)


# --- classes ------------------------------------------------------------------------------------


def test_neither_init_nor_post_init_is_called():
    point = Point(1)
    point.x, point.made = "text", 9
    again = decode(encode(point, "it", KNOWN), KNOWN)
    assert (again.x, again.made) == ("text", 9)
    record = Record(1)
    msgspec.structs.force_setattr(record, "a", "built")
    again = decode(encode(record, "it", KNOWN), KNOWN)
    assert type(again) is Record
    assert again.a == "built"


def test_models_keep_what_was_set_what_was_made_and_extras():
    model = Model(a=1)
    model.tags.append("later")
    again = decode(encode(model, "it", KNOWN), KNOWN)
    assert again == model
    assert again.model_fields_set == {"a"}
    assert again.tags == ["new", "later"]
    assert again._secret == 7
    extra = Open.model_validate({"a": 1, "more": (1, 2)})
    setattr(extra, "late", "set after")
    again = decode(encode(extra, "it", KNOWN), KNOWN)
    assert again == extra
    assert again.model_extra == {"more": (1, 2), "late": "set after"}
    assert again.model_fields_set == extra.model_fields_set
    assert decode(encode(Root([1, 2]), "it", KNOWN), KNOWN) == Root([1, 2])


def test_models_are_not_validated_again():
    model = Model.model_construct(n="not a number")
    assert decode(encode(model, "it", KNOWN), KNOWN).n == "not a number"


def test_a_datetime_that_pydantic_parsed_survives():
    class Event(pydantic.BaseModel):
        at: dt.datetime

    known = Known()
    known.register(Event)
    event = Event.model_validate_json('{"at":"2026-01-02T03:04:05+05:30"}')
    again = decode(encode(event, "it", known), known)
    assert again == event
    assert type(again.at.tzinfo) is type(event.at.tzinfo)


def test_fields_newer_than_the_record_take_todays_default():
    @dataclasses.dataclass
    class Note:
        text: str

    old = Known()
    old.register(Note, "Note")
    node = encode(Note("hi"), "it", old)

    @dataclasses.dataclass
    class Newer:
        text: str
        tags: list[str] = dataclasses.field(default_factory=list)

    new = Known()
    new.register(Newer, "Note")
    assert decode(node, new) == Newer("hi", [])

    @dataclasses.dataclass
    class Other:
        body: str = ""

    other = Known()
    other.register(Other, "Note")
    with pytest.raises(ClassChanged, match="'text' that Note no longer has") as it:
        decode(node, other)
    assert (it.value.stored, it.value.today) == (("text",), ("body",))
    other.register(Other, "Note", lambda fields: Other(fields["text"].upper()))
    assert decode(node, other) == Other("HI")
    other.register(Other, "Note", lambda fields: {"body": fields["text"]})
    assert decode(node, other) == Other("hi")

    class Unknown(Other):
        pass

    for wrong in (
        lambda _: 1,
        lambda _: {"text": "hi"},
        lambda fields: fields["nothing"],
        lambda _: Unknown("hi"),
        lambda _: Other(cast("str", object())),
        lambda _: {"body": object()},
    ):
        other.register(Other, "Note", wrong)
        with pytest.raises(ClassChanged, match="its upgrade failed"):
            decode(node, other)


class Old(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    ADMIN = enum.auto()


class Reordered(enum.Flag):
    ADMIN = enum.auto()
    AUDIT = enum.auto()
    WRITE = enum.auto()
    READ = enum.auto()


def test_a_combination_of_flags_is_its_names_and_not_its_number():
    old, new, less = Known(), Known(), Known()
    old.register(Old, "Right")
    new.register(Reordered, "Right")
    both, none = encode(Old.READ | Old.WRITE, "it", old), encode(Old(0), "it", old)
    assert decode(both, new) is Reordered.READ | Reordered.WRITE
    assert decode(none, new) is Reordered(0)
    assert digest(Old.READ | Old.WRITE, old) == digest(Reordered.WRITE | Reordered.READ, new)

    other = Known()
    other.register(Level, "Right")
    with pytest.raises(ClassChanged, match="has no member"):
        decode(both, other)

    class Less(enum.Flag):
        READ = enum.auto()
        ADMIN = enum.auto()

    less.register(Less, "Right")
    with pytest.raises(ClassChanged, match="has no member 'WRITE'") as it:
        decode(both, less)
    assert (it.value.stored, it.value.today) == (("READ", "WRITE"), ("READ", "ADMIN"))
    less.register(Less, "Right", lambda fields: {"names": fields["names"][:1]})
    assert decode(both, less) is Less.READ


def test_bits_without_a_name_are_kept():
    class Loose(enum.IntFlag):
        A = 1
        WIDE = 6
        ALIAS = 1

    known = Known()
    known.register(Loose)
    for number in range(20):
        made = Loose(number)
        again = decode(encode(made, "it", known), known)
        assert again is made
    assert b'["A","WIDE",8]' in encode(Loose(15), "it", known)


def test_zones_and_folds():
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    for value in (
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=berlin),
        dt.datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=berlin),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.time(1, 2, 3, 4, tzinfo=dt.UTC),
    ):
        again = decode(encode(value))
        assert same(again, value)
        assert (again.fold, again.tzname(), type(again.tzinfo)) == (
            value.fold,
            value.tzname(),
            type(value.tzinfo),
        )


# --- what is refused ------------------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Stranger:
    pass


@dataclasses.dataclass
class Unknown:
    x: int = 1


def loop() -> list[Any]:
    inner: list[Any] = []
    inner.append({"again": inner})
    return inner


def deep(levels: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def with_attribute() -> Point:
    point = Point(1)
    setattr(point, "other", 1)
    return point


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        ({"messages": [1, 2, 3, {"tool": Text("a")}]}, "result['messages'][3]['tool']", "str(...)"),
        (Point([Unknown()]), "result.x[0]", "holdfast.versioning.register_type(Unknown)"),
        (Model(a={"k": Stranger()}), "result.a['k']", "Stranger cannot be stored"),
        ((1, collections.OrderedDict(a=1)), "result[1]", "dict(...)"),
        ([collections.defaultdict(list)], "result[0]", "dict(...)"),
        ({"f": print}, "result['f']", "can be called"),
        ({"f": Stranger}, "result['f']", "is a class"),
        ({"g": (i for i in "ab")}, "result['g']", "pass a list"),
        ({"t": "\ud800"}, "result['t']", "surrogate"),
        ({"\udfff": 1}, "result", "surrogate"),
        ({"n": [10**5000]}, "result['n'][0]", "4300 digits"),
        (loop(), "result[0]['again']", "contains itself"),
        (
            {"z": dt.datetime(2026, 1, 1, tzinfo=type("Tz", (dt.tzinfo,), {})())},
            "result['z']",
            "zoneinfo",
        ),
        ([with_attribute()], "result[0]", "'other' that is no field"),
        ({(1, Stranger()): 1}, "result[(1, ", "Stranger cannot be stored"),
        ({"s": {Text("x")}}, "result['s'][0]", "str(...)"),
        (range(3), "result", "a range cannot be stored"),
        (object(), "result", "an object cannot be stored"),
        (1j, "result", "complex cannot be stored"),
        (memoryview(b"x"), "result", "memoryview cannot be stored"),
        (open, "result", "can be called"),
    ],
)
def test_refused_with_the_path(value, path, why):
    with pytest.raises(NotSerializable) as caught:
        encode(value, "result", KNOWN)
    assert caught.value.path.startswith(path)
    assert why in caught.value.why
    with pytest.raises(NotSerializable) as again:
        digest(value, KNOWN, "result")
    assert str(again.value) == str(caught.value)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), Point])
def test_depth_is_bounded(wrap):
    fits = deep(64, wrap)
    assert same(decode(encode(fits, "it", KNOWN), KNOWN), fits, KNOWN)
    for levels in (65, 500, 50_000):
        value = deep(levels, wrap)
        with pytest.raises(NotSerializable, match="64 levels"):
            encode(value, "it", KNOWN)
        while levels > 500 and not isinstance(value, int):  # freed from outside in: no C recursion
            value = (
                value.x
                if isinstance(value, Point)
                else next(iter(value.values() if isinstance(value, dict) else value))
            )


def test_size_is_bounded():
    part = "x" * (1024 * 1024)
    with pytest.raises(NotSerializable, match="64 MiB"):
        encode([part] * 65)
    with pytest.raises(NotSerializable, match="64 MiB"):
        encode([(part,)] * 65)


def test_a_class_that_changes_its_fields_is_refused():
    @dataclasses.dataclass
    class Doubling:
        x: int

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, "__dict__", {name: value})

        @property
        def y(self) -> int:
            return 1

    class Odd:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = "_" + name

        def __get__(self, obj: Any, owner: Any = None) -> Any:
            return 0 if obj is None else obj.__dict__[self.name]

        def __set__(self, obj: Any, value: Any) -> None:
            obj.__dict__[self.name] = value * 2

    @dataclasses.dataclass
    class Described:
        x: int = Odd()  # type: ignore[assignment]

    known = Known()
    known.register(Doubling)
    known.register(Described)
    assert decode(encode(Doubling(3), "it", known), known).x == 3
    with pytest.raises(NotSerializable, match="no field|changes its fields"):
        encode(Described(3), "it", known)


def test_a_cached_property_is_forgotten():
    @dataclasses.dataclass
    class Doc:
        text: str

        @functools.cached_property
        def words(self) -> int:
            return len(self.text.split())

    known = Known()
    known.register(Doc)
    doc = Doc("a b")
    assert doc.words == 2
    assert decode(encode(doc, "it", known), known).words == 2


def test_nothing_mutable_of_a_value_is_shared_with_its_copy():
    value = Point([{"a": [1]}], ({"k": bytearray(b"x")},))
    copy = Writer(KNOWN, copying=True).write(value, "it")[1]
    assert same(copy, value, KNOWN)
    copy.x[0]["a"].append(2)
    copy.y[0]["k"].append(0)
    assert value == Point([{"a": [1]}], ({"k": bytearray(b"x")},))


# --- the registry -----------------------------------------------------------------------------------


def frozen_point() -> Any:
    return Point(1)


def test_names():
    known = Known()

    @dataclasses.dataclass
    class Point:  # a second class of that name in this module, elsewhere
        z: int

    known.register(type(frozen_point()))
    with pytest.raises(UsageError, match=r"two classes.*test_codec.Point.*<locals>.Point.*name="):
        known.register(Point)
    known.register(Point, name="Point3")
    assert known.name_of(Point) == "Point3"
    assert known.by_name("Point3") is Point
    assert known.by_name("Nobody") is None
    assert known.name_of(int) is None
    with pytest.raises(UsageError, match="cannot be registered"):
        known.register(Stranger)
    with pytest.raises(UsageError, match="cannot be registered"):
        known.register("Stranger")  # type: ignore[type-var]


def test_the_same_class_again_replaces():
    def define() -> type:
        @dataclasses.dataclass
        class Cell:
            x: int

        return Cell

    known = Known()
    first, second = known.register(define()), known.register(define())
    assert known.by_name("Cell") is second
    assert decode(encode(second(1), "it", known), known) == second(1)
    with pytest.raises(NotSerializable, match="not known"):
        encode(first(1), "it", known)


T = TypeVar("T")


@dataclasses.dataclass
class Inner:
    color: Color


@dataclasses.dataclass
class Outer(Generic[T]):
    inner: list[Inner] | None
    me: Outer[T] | None
    unresolved: Nowhere  # type: ignore[name-defined]  # noqa: F821
    record: Annotated[Record, "note"]


class Answer(pydantic.BaseModel, Generic[T]):
    of: T


class Keys(TypedDict):
    a: Pair


def test_learning_from_annotations():
    known = Known()
    known.learn(dict[str, tuple[Outer[Model] | None, ...]])
    for cls in (Outer, Inner, Color, Record, Model):
        assert known.name_of(cls) == cls.__qualname__, cls
    known.learn(Annotated[list[Answer[Level]], 1])
    assert known.name_of(Answer[Level])
    assert known.name_of(Level)
    known.learn(Keys | Any | None)
    known.learn(enum.Enum)
    known.learn("a text")
    known.learn(Literal[Right.READ, "x"])
    assert known.name_of(Right) == "Right"
    answer = Answer[Level](of=Level.LOW)
    assert decode(encode(answer, "it", known), known) == answer


# --- seals --------------------------------------------------------------------------------------------


def test_seals_depend_on_every_field_its_type_and_its_place():
    rows: list[list[Any]] = [
        [],
        [None],
        [1],
        ["1"],
        [b"1"],
        [1, None],
        [None, 1],
        ["ab", "c"],
        ["a", "bc"],
        [-1],
        [""],
        [b""],
        [12, 3],
        [1, 23],
        ["1:i2"],
        ["n"],
        [2**70],
    ]
    seals = {seal(bytes(16), row) for row in rows}
    assert len(seals) == len(rows)
    assert seal(b"\1" * 16, [1]) != seal(bytes(16), [1])
    assert all(len(s) == 16 for s in seals)


def test_uuid_is_a_value():
    value = {"id": uuid.uuid1(), "d": Decimal("-0.10"), "e": Decimal("sNaN12")}
    assert str(decode(encode(value))) == str(value)
