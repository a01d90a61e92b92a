"""I24: a registered secret is stored, logged and shown nowhere; fault 110."""

import asyncio
import io
import logging
import sqlite3
from pathlib import Path

import pytest

import holdfast
from holdfast import effect, errors, flow, step
from holdfast._engine.values import masks
from holdfast.observers.logging import JsonFormatter, LineFormatter, RunFilter
from holdfast.redaction import Secret
from tests.runtime.facts import until

CANARY = "canary-3f9a/b+c\"d'é"


@pytest.fixture
def canary():
    before = dict(masks._texts), list(masks.registered)
    yield holdfast.redaction.register_secret("canary", CANARY)
    masks._texts.clear()
    masks._texts.update(before[0])
    masks.registered[:] = before[1]


@step
def secret_echo(text: str) -> dict:
    holdfast.context.save_progress(f"at {CANARY}")
    holdfast.emit({"said": CANARY})
    return {"text": text, "bytes": CANARY.encode("latin-1"), "deep": [(CANARY, 1)]}


@effect(on_doubt="hold")
def secret_charge(token: Secret, order: str) -> str:
    assert token.reveal() == CANARY
    return f"charged {order} with {token.reveal()}"


@step
def secret_failure() -> None:
    raise ValueError(f"401 for {CANARY!r}")


@flow
def secret_flow(text: str, token: Secret) -> str:
    secret_echo(f"{text} {CANARY}")
    return secret_charge(token, "42")


@flow
def secret_fails() -> None:
    logging.getLogger("mine").error("using %s", CANARY)
    secret_failure()


@flow
async def secret_waits() -> str:
    return await holdfast.aio.wait_for_signal("word", type=str)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


FORMS = [CANARY.encode(), CANARY.encode("latin-1"), b"canary-3f9a"]


def test_110_a_secret_is_in_no_file_and_no_view(tmp_path, canary, capsys):
    with holdfast.open(f"sqlite:///{tmp_path}/s.db", default=True) as store:
        assert secret_flow.run("s-1", f"with {CANARY}", canary) == "charged 42 with [secret canary]"
        with pytest.raises(errors.RunFailed, match=r"401 for '\[secret canary\]'"):
            secret_fails.run("s-2")
        handle = secret_waits.start("s-3")
        store.signal("s-3", "word", f"it is {CANARY}")
        assert handle.result(timeout=30) == "it is [secret canary]"
        shown = [str(store.get(run)) + str(store.history(run)) for run in ("s-1", "s-2", "s-3")]
        shown += [str(entry.body) for run in ("s-1", "s-2") for entry in store.history(run)]
        assert "canary-3f9a" not in "".join(shown)
        assert "[secret canary]" in "".join(shown)
    stored = bytes_of(tmp_path)
    assert not [form for form in FORMS if form in stored]
    said = capsys.readouterr()
    assert "canary-3f9a" not in said.out + said.err


def test_110_a_replay_has_the_secret_again_and_the_store_its_name(tmp_path, canary):
    path = tmp_path / "s.db"
    with holdfast.open(f"sqlite:///{path}", default=True) as store:
        secret_flow.run("s-1", "x", canary)
        started = next(e for e in store.history("s-1") if e.step == "secret_charge")
        assert started.body["args"]["token"] == canary
        assert secret_flow.run("s-1", "x", canary).startswith("charged")
    with sqlite3.connect(path) as plain:
        assert plain.execute("select count(*) from runs").fetchone() == (1,)


def test_110_logs_are_masked_with_their_tracebacks(canary):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RunFilter())
    for name in ("holdfast", "mine"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        try:
            try:
                raise RuntimeError(f"no {CANARY}")
            except RuntimeError:
                logger.exception("failed with %s", CANARY)
        finally:
            logger.removeHandler(handler)
    assert out.getvalue().count("failed with [secret canary]") == 2
    assert out.getvalue().count("RuntimeError: no [secret canary]") == 2
    assert "canary-3f9a" not in out.getvalue()


def test_what_identifies_something_holds_no_secret(holdfast_store, canary):
    with pytest.raises(errors.UsageError, match=r"must not hold a secret: '.*\[secret canary\]'"):
        secret_fails.run(f"run-{CANARY}")


def test_a_secret_says_nothing_by_itself(canary):
    assert (str(canary), repr(canary), f"{canary}") == (
        "[secret canary]",
        "Secret('canary')",
        "[secret canary]",
    )
    with pytest.raises(errors.UsageError, match="does not know the secret 'other'"):
        Secret("other").reveal()
    with pytest.raises(errors.UsageError, match="8 or more characters"):
        holdfast.redaction.register_secret("short", "1234")


def test_a_renewed_secret_masks_the_old_text_too(canary):
    holdfast.redaction.register_secret("canary", "another-text-9")
    assert (
        holdfast.redaction.redact(f"{CANARY} another-text-9") == "[secret canary] [secret canary]"
    )
    assert canary.reveal() == "another-text-9"


def test_redact_of_the_user_comes_first(tmp_path, canary):
    def redact(path, value):
        return "gone" if value == "x" else value

    with holdfast.open(f"sqlite:///{tmp_path}/s.db", redact=redact) as store:
        secret_flow.run("s-1", "x", canary)
        assert store.get("s-1").input["text"] == "gone"
    assert b"canary-3f9a" not in bytes_of(tmp_path)


def test_async_flows_mask_too(tmp_path, canary):
    @flow(name="secret-async")
    async def go() -> str:
        return CANARY

    with holdfast.open(f"sqlite:///{tmp_path}/s.db"):
        assert asyncio.run(go.run("a-1")) == "[secret canary]"
    assert b"canary-3f9a" not in bytes_of(tmp_path)


class SecretKind(Exception):
    pass


@step
def secret_model() -> dict:
    holdfast.context.record_usage(model=f"m-{CANARY}", note=CANARY)
    holdfast.context.save_progress({CANARY: 1})
    return {CANARY: {f"x{CANARY}": bytearray(CANARY.encode("utf-16-le"))}}


@flow
def secret_asks() -> str:
    secret_model()
    return holdfast.ask(f"say {CANARY}?", name="word", choices=[CANARY, "no"], timeout="1h")


def test_110_questions_reasons_keys_and_names_are_masked_too(tmp_path, canary):
    with holdfast.open(f"sqlite:///{tmp_path}/s.db", default=True) as store:
        secret_asks.start("q-1")
        until(lambda: len(store.questions()) == 1)
        [question] = store.questions()
        assert question.text == "say [secret canary]?"
        store.cancel("q-1", reason=f"because of {CANARY}")
        secret_asks.start("q-2")
        until(lambda: len(store.questions()) == 1)
        store.reject("q-2", "word", reason=CANARY, actor="ana")
        until(lambda: store.get("q-2").status == "failed")
        with pytest.raises(errors.RunNotFound, match=r"\[secret canary\]"):
            store.get(CANARY)
        with pytest.raises(errors.UsageError, match="the tag 'a' must not hold a secret"):
            secret_asks.with_options(tags={"a": CANARY})
        assert not list(store.verify())
    stored = bytes_of(tmp_path)
    forms = [*FORMS, CANARY.encode("utf-16-le")]
    assert not [form for form in forms if form in stored]


def test_110_a_line_of_json_tells_the_type_of_an_error_and_no_text(canary):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RunFilter())
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("secret-json")
    logger.addHandler(handler)
    try:
        try:
            raise SecretKind(f"no {CANARY}\nsecond line")
        except SecretKind as error:
            error.add_note("a note")
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    assert '"exception": "SecretKind"' in out.getvalue()
    assert "second line" not in out.getvalue()
    assert "a note" not in out.getvalue()


def test_110_what_a_format_adds_is_masked(canary):
    record = logging.LogRecord("n", logging.INFO, "p", 1, "x", (), None)
    record.mine = CANARY
    assert LineFormatter("%(message)s %(mine)s").format(record) == "x [secret canary]"


def test_where_arguments_differ_a_secret_is_shown_by_its_name(holdfast_store, canary):
    texts = iter(["nothing", f"with {CANARY}"])

    @step
    def secret_sends(text: str) -> str:
        return "sent"

    @flow
    def secret_changes() -> None:
        secret_sends(next(texts))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secret_changes.run("r")
    with pytest.raises(errors.RunHeld) as held:
        secret_changes.run("r")
    assert "text was 'nothing', is 'with [secret canary]'" in str(held.value)
    assert CANARY not in str(held.value)
    assert "[secret canary]" in (holdfast_store.get("r").held_detail or "")
