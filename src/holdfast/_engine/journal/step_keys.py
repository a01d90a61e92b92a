"""Names and keys: run ids, step names, step keys, and idempotency keys. Pure.

A step key is `name`, `name#2` … within its scope. A scope is one branch at one turn; its path
stands before the key: `turns[3]/gather[0]/search#2`. The position is the number of the call
within its scope: replay compares position, key and argument digest.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping

from holdfast._engine.values.masks import holds_secret, masked
from holdfast.errors import UsageError

APPROVE = "approve:"
"""The prefix of an approval question's name; the rest is the step key."""
RUN_ID_MAX_CHARS = 200
NAME_MAX_CHARS = 200
STEP_KEY_MAX_CHARS = 200
CHILD_SEPARATOR = "::"
"""Part of derived IDs (child runs, ticks of schedules), and refused in users' IDs."""

_RESERVED_IN_NAMES = set("/#[]:")
_MARKER = "patched::"


def check_run_id(run_id: object) -> str:
    """Return the run ID, or raise a UsageError that names the problem."""
    if not isinstance(run_id, str) or type(run_id) is not str:
        raise UsageError(
            f"a run id is a str, not {type(run_id).__name__} ({run_id!r:.80}); "
            "it is the first argument: flow.run('my-run-id', …)"
        )
    _check_text("a run id", run_id, RUN_ID_MAX_CHARS)
    if CHILD_SEPARATOR in run_id:
        raise UsageError(f"run id {run_id!r}: {CHILD_SEPARATOR!r} is reserved for derived IDs")
    return run_id


def check_name(what: str, name: object) -> str:
    """Return the name of a step or flow, or raise a UsageError."""
    if not isinstance(name, str):
        raise UsageError(f"the name of a {what} is a str, not {type(name).__name__}")
    _check_text(f"the name of a {what}", name, NAME_MAX_CHARS)
    bad = sorted(_RESERVED_IN_NAMES.intersection(name))
    if bad:
        raise UsageError(
            f"{what} name {name!r}: {' '.join(bad)} is not allowed in a name; use name="
        )
    return name


def check_label(what: str, text: object) -> str:
    """Return the short name of anything besides steps and flows, or raise a UsageError."""
    if not isinstance(text, str):
        raise UsageError(f"{what} is a str, not {type(text).__name__}")
    _check_text(what, text, NAME_MAX_CHARS)
    return text


def _check_text(what: str, text: str, limit: int) -> None:
    shown = repr(text[:40])
    if not text:
        raise UsageError(f"{what} must not be empty")
    if len(text) > limit:
        raise UsageError(f"{what} has at most {limit} characters; {shown}… has {len(text)}")
    if text != text.strip():
        raise UsageError(f"{what} must not begin or end with white space: {shown}")
    for char in text:
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
            raise UsageError(
                f"{what} must not contain control, formatting or undefined characters: "
                f"U+{ord(char):04X} in {shown}"
            )
    _check_open(what, text)


def _check_open(what: str, text: str) -> None:
    """Refuse a secret in a name or key, which everybody sees."""
    if holds_secret(text):
        raise UsageError(f"{what} must not hold a secret: {masked(text)!r:.80}")


def checked_tags(tags: dict[str, str]) -> dict[str, str]:
    """Return the tags of a run, or raise a UsageError: everybody sees them."""
    for name, value in tags.items():
        _check_open(f"the tag {name!r}", str(value))
    return tags


def quoted(step_key: object) -> str:
    """Return an explicit step key in a form that cannot be mistaken for a path. A long one (models
    make up IDs of any length) is cut, and a digest of the whole replaces the rest."""
    if not isinstance(step_key, str) or not step_key:
        raise UsageError(f"step_key= is a non-empty str, not {step_key!r:.80}")
    if len(step_key) > STEP_KEY_MAX_CHARS:
        whole = step_key.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(whole, digest_size=16).hexdigest()
        step_key = f"{step_key[: STEP_KEY_MAX_CHARS - len(digest) - 1]}~{digest}"
    return "".join(
        char if char.isprintable() and char not in "/#[]:%" else f"%{ord(char):02X}"
        for char in step_key
    )


def marker(change: str) -> str:
    """Return the name under which a run records that it has a change; no step can have it."""
    return f"{_MARKER}{quoted(change)}"


def is_marker(step: str) -> bool:
    """Return whether a key is the marker of a change."""
    return step.rpartition("/")[2].startswith(_MARKER)


class Scope:
    """One branch of calls: assigns step keys and positions in the order of the calls."""

    __slots__ = ("_seen", "path", "position")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.position = 0
        self._seen: dict[str, int] = {}

    def take(self, name: str) -> tuple[str, int]:
        """Return the key and position of the next call of this name."""
        position = self.position
        self.position = position + 1
        seen = self._seen
        count = seen[name] = seen.get(name, 0) + 1
        key = name if count == 1 else f"{name}#{count}"
        return (f"{self.path}/{key}" if self.path else key), position

    def take_key(self, name: str) -> str:
        """Return the key of the next call of this name, without a position."""
        count = self._seen.get(name, 0) + 1
        self._seen[name] = count
        return self.whole(name if count == 1 else f"{name}#{count}")

    def whole(self, key: str) -> str:
        """Return a key of this scope with its path."""
        return f"{self.path}/{key}" if self.path else key


def scope_of(step: str) -> str:
    """Return the scope path of a step key."""
    return step.rpartition("/")[0]


def name_of(step: str) -> str:
    """Return the step's name from its key."""
    return step.rpartition("/")[2].partition("#")[0].partition(":")[0]


def undo_key(step: str, generation: int) -> str:
    """Return the step key of the undo of an effect in a generation; no other step can have it,
    because a scope of calls always has a number in brackets."""
    return f"undo/{step}" if generation == 1 else f"undo[{generation}]/{step}"


def is_undo(step: str) -> bool:
    """Return whether a key is the undo of an effect."""
    return step.startswith(("undo/", "undo["))


def told_name(name: str, step: str) -> str:
    """Return a step's name for statistics by name: an undo is not counted as its effect."""
    return f"{name}.undo" if is_undo(step) else name


def is_within(scope: str, ancestor: str) -> bool:
    """Return whether a scope is the other one or lies inside it."""
    return not ancestor or scope == ancestor or scope.startswith(ancestor + "/")


def are_parallel(one: str, other: str) -> bool:
    """Return whether two scopes lie in different branches of one fan-out."""
    for left, right in zip(one.split("/"), other.split("/"), strict=False):
        if left != right:
            fan_out = left.partition("[")[0]
            return fan_out == right.partition("[")[0] and not fan_out.startswith("turns")
    return False


def derived_key(namespace_id: str, run_id: str, generation: int, step: str) -> str:
    """Return the idempotency key of a step: the same on every attempt of its generation."""
    digest = hashlib.blake2b(digest_size=20, person=b"holdfast-key")
    for part in (namespace_id, run_id, str(generation), step):
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return "hf_" + digest.hexdigest()


def rendered_key(template: str, arguments: Mapping[str, object], effect: str) -> str:
    """Fill a business key template such as "report:{report_id}" from the arguments."""
    import string

    try:
        key = string.Formatter().vformat(template, (), arguments)
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"key={template!r} of {effect} cannot be filled from its arguments "
            f"({', '.join(arguments) or 'none'}): {error!r}"
        ) from None
    return checked_business_key(key, effect)


def checked_business_key(key: object, effect: str) -> str:
    """Return a business key that can be stored and sent."""
    if not isinstance(key, str) or not key:
        raise UsageError(f"the key of {effect} must be a non-empty str, not {key!r:.80}")
    _check_text(f"the key of {effect}", key, RUN_ID_MAX_CHARS)
    return key
