"""Log lines: one for each record whatever it holds, with the run and the step, and no payload of ours."""

import json
import logging

import pytest

import holdfast
from holdfast import Retry, effect, flow, step, testing
from holdfast.observers.logging import JsonFormatter, LineFormatter, RunFilter
from tests.attempts import attempt

HOSTILE = "a\n2026-01-01 ERROR forged\r\x1b[31mred\x1b[0m\x00\u2028next\u202edisguised\x85end"


class Kept(logging.Handler):
    """Keeps the lines that a formatter makes."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.addFilter(RunFilter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def told(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def logger():
    logger = logging.getLogger("tests.observers.logged")
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()


def kept(logger: logging.Logger, formatter: logging.Formatter) -> Kept:
    handler = Kept(formatter)
    logger.addHandler(handler)
    return handler


said = logging.getLogger("tests.observers.logged")


@step(retry=Retry(attempts=2, initial_wait_s=0.001))
def logged_search(text: str) -> str:
    said.info("searching")
    if attempt() == 1:
        raise OSError("once")
    return text


@flow
def logged_report(text: str) -> str:
    said.info("begun")
    found = logged_search(text)
    said.info("found")
    return found


def test_a_record_knows_its_run_its_step_and_its_attempt(holdfast_store, logger):
    handler = kept(logger, JsonFormatter())
    logger.info("before")
    logged_report.run("logged-1", "x")
    run = {"run_id": "logged-1", "flow": "logged_report", "generation": 1}
    told = [{k: v for k, v in it.items() if k not in ("time", "logger")} for it in handler.told()]
    assert told == [
        {"level": "INFO", "message": "before"},
        {"level": "INFO", "message": "begun", **run},
        {"level": "INFO", "message": "searching", **run, "step": "logged_search", "attempt": 1},
        {"level": "INFO", "message": "searching", **run, "step": "logged_search", "attempt": 2},
        {"level": "INFO", "message": "found", **run},
    ]
    assert handler.told()[0]["time"].endswith("+00:00")


@pytest.mark.parametrize("formatter", [JsonFormatter(), LineFormatter()])
def test_what_is_logged_cannot_begin_a_line_or_move_a_cursor(logger, formatter):
    handler = kept(logger, formatter)
    logger.warning("user said: %s", HOSTILE)
    logger.warning(HOSTILE)
    for line in handler.lines:
        assert len(line.splitlines()) == 1
        assert line.isprintable()


def test_what_is_logged_can_be_read_back_from_json(logger):
    handler = kept(logger, JsonFormatter())
    logger.warning(HOSTILE)
    assert [it["message"] for it in handler.told()] == [HOSTILE]
    # Arguments that do not fit are no reason to say nothing.
    misfit = logging.LogRecord("x", logging.INFO, "", 0, "%s and %s", ("one",), None)
    assert json.loads(JsonFormatter().format(misfit))["message"] == "%s and %s"


def test_an_exception_is_told_by_its_type_and_places_and_not_its_text(logger):
    handler = kept(logger, JsonFormatter())
    try:
        raise ValueError(f"canary {HOSTILE}")
    except ValueError:
        logger.exception("it failed")
    told = handler.told()[0]
    assert told["exception"] == "ValueError"
    assert told["places"][-1].endswith(
        "in test_an_exception_is_told_by_its_type_and_places_and_not_its_text"
    )
    assert "canary" not in handler.lines[0]


def test_a_traceback_in_text_cannot_pass_for_another_line(logger):
    handler = kept(logger, LineFormatter())
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed")
    first, *rest = handler.lines[0].splitlines()
    assert first.endswith("ERROR it failed")
    assert rest
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)


def test_a_secret_is_masked_in_every_line(logger):
    holdfast.redaction.register_secret("logged-key", "sk-logged-12345")
    for formatter in (JsonFormatter(), LineFormatter()):
        handler = kept(logger, formatter)
        logger.warning("key %s", "sk-logged-12345")
        try:
            raise ValueError("sk-logged-12345")
        except ValueError:
            logger.exception("refused")
        assert "sk-logged-12345" not in "\n".join(handler.lines)
        assert "[secret logged-key]" in handler.lines[0]
        logger.handlers.clear()


def test_what_is_replayed_is_dropped(holdfast_store, logger):
    handler = kept(logger, JsonFormatter())
    with pytest.raises(holdfast.errors.RunFailed):
        logged_twice.run("logged-2")
    assert [it["message"] for it in handler.told()] == ["first"]
    mended.append(1)
    logged_twice.run("logged-2")
    assert [it["message"] for it in handler.told()] == ["first", "second"]


mended: list[int] = []


@step
def logged_one() -> int:
    return 1


@step
def logged_other() -> int:
    if not mended:
        raise ValueError("not yet")
    return 2


@flow
def logged_twice() -> int:
    said.info("first")
    logged_one()
    logged_other()
    said.info("second")
    return 3


# -- what we log ourselves ---------------------------------------------------------------------


@step
def logged_break(text: str) -> str:
    raise ValueError(f"canary-in-error {text}")


@effect
def logged_pay(text: str) -> str:
    raise OSError(f"canary-in-error {text}")


@flow
def logged_failing(text: str) -> str:
    return logged_break(text)


@flow
def logged_doubtful(text: str) -> str:
    return logged_pay(text)


def test_our_own_lines_have_the_run_as_fields_and_no_text_of_an_error(caplog):
    caplog.set_level("INFO", "holdfast")
    with testing.store() as store:
        logged_failing.with_options(store=store).submit("logged-3", "canary-in-args")
        logged_doubtful.with_options(store=store).submit("logged-4", "canary-in-args")
        store.recover()
    told = {it.run_id: it for it in caplog.records if hasattr(it, "run_id")}
    failed, held = told["logged-3"], told["logged-4"]
    assert (failed.flow, failed.step, failed.generation) == ("logged_failing", "logged_break", 1)
    assert failed.exception == "ValueError"
    assert (held.flow, held.step, held.reason) == ("logged_doubtful", "logged_pay", "in_doubt")
    assert "store.explain('logged-4')" in held.getMessage()
    assert "canary" not in caplog.text
    line = json.loads(JsonFormatter().format(held))
    assert (line["run_id"], line["step"], line["reason"]) == ("logged-4", "logged_pay", "in_doubt")


@step
def logged_fine(text: str) -> str:
    return text


@flow
def logged_completing(text: str) -> str:
    return logged_fine(text)


@flow
def logged_raising(text: str) -> str:
    raise ValueError(logged_fine(text))


def test_a_line_that_is_about_a_run_names_no_step(caplog):
    """It came to its end, or its own code failed: the step before that has nothing to do with it."""
    caplog.set_level("DEBUG", "holdfast")
    with testing.store() as store:
        with store.worker(flows=[logged_completing, logged_raising]):
            completes = logged_completing.with_options(store=store).submit("logged-5", "x")
            fails = logged_raising.with_options(store=store).submit("logged-6", "x")
            assert completes.result(timeout=30) == "x"
            with pytest.raises(holdfast.errors.RunFailed):
                fails.result(timeout=30)
    told = [it for it in caplog.records if getattr(it, "run_id", "") in ("logged-5", "logged-6")]
    assert {it.getMessage().split(";")[0] for it in told} >= {
        "run logged-5 of logged_completing completed",
        "run logged-6 of logged_raising failed: ValueError",
    }
    assert [it.getMessage() for it in told if hasattr(it, "step")] == []
