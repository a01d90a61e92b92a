"""What must not be stored is nowhere in the files, and replay still fits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

import holdfast
from holdfast import effect, errors, flow, step, turns
from holdfast._engine.values.redactor import redacted

SECRET = "canary-8c1f22e0"
HIDDEN = "(hidden)"


def hide(_path: str, value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(SECRET, HIDDEN)
    return b"" if isinstance(value, bytes) and SECRET.encode() in value else value


@dataclasses.dataclass
class RedactLogin:
    user: str
    token: str
    history: list[str]


class RedactStruct(msgspec.Struct, frozen=True):
    token: str
    n: int


holdfast.versioning.register_type(RedactStruct)


class RedactDeclined(Exception):
    pass


@step
def redact_login(login: RedactLogin, raw: bytes) -> dict[str, Any]:
    assert login.token == SECRET, "the body gets what it was called with"
    holdfast.emit({"token": login.token})
    holdfast.context.save_progress(login.token)
    holdfast.memory("redact").set("token", login.token)
    return {"kept": RedactStruct(login.token, 7), "text": f"long {login.token} " * 200}


@step(raises=(RedactDeclined,))
def redact_declines() -> None:
    raise RedactDeclined("bad token", SECRET)


@step
def redact_fails() -> None:
    raise ValueError(f"cannot log in with {SECRET}")


@step(fallback="degraded")
def redact_degrades() -> str:
    raise ValueError(f"cannot log in with {SECRET}")


seen: list[Any] = []
broken: list[bool] = []


@flow
def redact_flow(token: str) -> Any:
    seen.append(token)
    login = RedactLogin("me", SECRET, ["x", SECRET])
    told: list[Any] = [redact_login(login, SECRET.encode()), redact_degrades()]
    for failing in (redact_declines, redact_fails):
        try:
            failing()
        except (RedactDeclined, errors.StepFailed) as error:
            told.append(str(error))
    for state in turns([f"state of {SECRET}"], max_turns=3):
        state.append(SECRET)
        redact_degrades()
        if len(state) == 3:
            told.append(list(state))
            break
    holdfast.memory("redact").set("of flow", [SECRET])
    if broken:
        raise RuntimeError(f"stopped with {SECRET}")
    return told


@effect
def redact_in_doubt(token: str) -> None:
    raise OSError(f"no answer for {token}")


@flow
def redact_held(token: str) -> None:
    redact_in_doubt(SECRET)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_the_secret_is_nowhere_and_replay_fits(tmp_path: Path) -> None:
    seen.clear()
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url, default=False, redact=hide) as store:
        redacting = redact_flow.with_options(store=store)
        broken[:] = [True]
        with pytest.raises(errors.RunFailed):
            redacting.run("r", SECRET)
        first = list(seen)
        broken.clear()
        result = redacting.run("r", SECRET)
        assert redacting.run("r", SECRET) == result, "the same input is the same run"
        with pytest.raises(errors.RunConflict):
            redacting.run("r", "another")
        with pytest.raises(errors.RunHeld) as held:
            redact_held.with_options(store=store).run("held", SECRET)
        assert "no answer for" in held.value.detail
        assert first == [HIDDEN], "the flow lives on what is stored, the first time too"
        assert set(seen) == {HIDDEN}
        assert SECRET not in str(result)
        assert result[0]["kept"] == RedactStruct(HIDDEN, 7)
        assert result[1] == "degraded"
        assert store.memory("redact").get("token") == HIDDEN
        assert store.memory("redact").get("of flow") == [HIDDEN]
        assert store.verify() == []
        shown = str([entry.body for entry in store.history("r")]) + str(store.explain("held"))
        assert SECRET not in shown
    assert HIDDEN.encode() in everything(tmp_path)
    assert SECRET.encode() not in everything(tmp_path)


def test_without_it_the_secret_is_there(tmp_path: Path) -> None:
    """So that the test above can fail."""
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store:
        redact_flow.with_options(store=store).run("r", SECRET)
    assert SECRET.encode() in everything(tmp_path)


paths: list[str] = []


@flow
def redact_paths(login: RedactLogin) -> str:
    redact_login(RedactLogin("u", SECRET, []), b"")
    return login.user


def by_path(path: str, value: Any) -> Any:
    paths.append(path)
    return HIDDEN if path.endswith(".token") else value


def test_paths_say_where(tmp_path: Path) -> None:
    paths.clear()
    with holdfast.open("memory:", default=False, redact=by_path) as store:
        redact_paths.with_options(store=store).run("r", RedactLogin("u", "t", ["h"]))
        assert store.get("r").input["login"].token == HIDDEN
    assert {
        *("input.login.user", "input.login.token", "input.login.history[0]"),
        *("redact_login: argument.login.token", "redact_login: result.kept.n"),
        *("redact_login: progress", "emit.token", "memory 'redact', 'token'", "result"),
    } <= set(paths)


@flow
def redact_refused() -> str:
    try:
        return str(redact_login(RedactLogin("u", SECRET, []), b""))
    except errors.StepFailed as failed:
        return failed.type_name


def failing(path: str, value: Any) -> Any:
    if "result.kept.token" in path:
        raise LookupError(f"no rule for {value}")
    return value


def test_a_redact_function_that_fails_stores_nothing() -> None:
    with holdfast.open("memory:", default=False, redact=failing) as store:
        assert redact_refused.with_options(store=store).run("r") == "NotSerializable"
        [failed] = [entry for entry in store.history("r") if entry.kind == "step_failed"]
        message = failed.body["error"]["message"]
        assert "the redact function raised LookupError" in message
        assert SECRET not in message


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.tuples(inner, inner)
        | st.builds(RedactStruct, st.text(), st.integers())
        | st.frozensets(st.text())
    ),
    max_leaves=20,
)


@given(value=values)
def test_what_is_not_touched_is_the_same_object(value: Any) -> None:
    assert redacted(value, "v", lambda _path, part: part) is value


@given(value=values)
def test_every_text_is_seen(value: Any) -> None:
    found: list[Any] = []

    def upper(_path: str, part: Any) -> Any:
        found.append(part)
        return "T" if isinstance(part, str) and part else part

    again: list[Any] = []

    def same(_path: str, part: Any) -> Any:
        again.append(part)
        return part

    made = redacted(value, "v", upper)
    redacted(made, "v", same)
    assert all(part == "T" for part in again if isinstance(part, str) and part)
    assert type(made) is type(value) or isinstance(value, str)


@step(name="redact-uses")
def redact_uses() -> None:
    holdfast.context.record_usage(model="m", prompt=SECRET, tools=[SECRET], note=f"with {SECRET}")


@flow(name="redact-rolls-back")
def redact_rolls_back() -> None:
    redact_uses()
    raise holdfast.errors.Rollback(f"because of {SECRET}")


def test_what_a_model_call_used_and_why_a_flow_rolls_back(tmp_path: Path):
    with holdfast.open(f"sqlite:///{tmp_path}/r.db", redact=hide) as store:
        with pytest.raises(errors.RunRolledBack, match=f"because of {re.escape(HIDDEN)}"):
            redact_rolls_back.run("r")
        told = "".join(str(entry.body) for entry in store.history("r"))
    assert f"with {HIDDEN}" in told
    assert holdfast.versioning.fingerprint(SECRET) in told
    for path in tmp_path.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
