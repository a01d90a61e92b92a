"""The code moves loops while a run is under way, by pairs of programs: nothing is repeated, and no
loop ever sees a state of another. All loops begin with the same state, so only the rest can tell."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from holdfast import effect, flow, testing, turns
from holdfast._api import loops
from holdfast._runtime.execution.operations import take_place
from holdfast.errors import RunHeld
from holdfast.testing.killed_processes import End, Ledger, Work, live
from tests.model.memory_store import MemoryStore, MemoryWorld

TAGS = "abcd"
done: Counter[str] = Counter()
foreign: list[str] = []
today: list[Any] = []
"""The flow's code as it is now."""

LOOP = """
    for state in turns({{"n": 0, "owner": None}}, max_turns=9, name={name}):
        saw({tag!r}, state)
        if state["n"] == 2:
            break
        first_{tag}(state["n"])
        {more}second_{tag}(state["n"])
        state.update(n=state["n"] + 1, owner={tag!r})
"""
SHARED = """
def shared(tag, name):
    for state in turns({"n": 0, "owner": None}, max_turns=9, name=name):
        saw(tag, state)
        if state["n"] == 2:
            break
        EFFECTS["first_" + tag](state["n"])
        EFFECTS["second_" + tag](state["n"])
        state.update(n=state["n"] + 1, owner=tag)
"""


def saw(tag: str, state: dict[str, Any]) -> None:
    if state["owner"] not in (None, tag):
        foreign.append(f"{tag} got the state of {state['owner']}")


def acts(name: str) -> Any:
    @effect(name=f"changed loops {name}")
    def act(n: int) -> str:
        done[f"{name}{n}"] += 1
        return name

    return act


EFFECTS = {
    f"{which}_{tag}": acts(f"{which}_{tag}") for which in ("first", "second") for tag in TAGS
}


@flow(name="changed loops")
def changed() -> Any:
    return today[0]()


# -- programs ------------------------------------------------------------------------------------

Loop = tuple[str, str, bool, bool]
"""Its tag, where it is written, whether it has a name, whether its body was edited."""
Program = tuple[Loop, ...]


def compiled(program: Program) -> Any:
    """Return a function with these loops, one after another."""
    text, body = SHARED, "def program():\n    pass\n"
    for tag, style, named, edited in program:
        name = repr(tag) if named else None
        loop = LOOP.format(tag=tag, name=name, more="state['more'] = 7; " if edited else "")
        if style == "inline":
            body += loop
        elif style == "own":
            text += f"def loop_{tag}():{loop}"
            body += f"    loop_{tag}()\n"
        else:
            body += f"    shared({tag!r}, {name})\n"
    space: dict[str, Any] = {"turns": turns, "saw": saw, "EFFECTS": EFFECTS, **EFFECTS}
    exec(text + body, space)  # noqa: S102 - code that changes is what this is about
    return space["program"]


styles = st.sampled_from(["inline", "own", "shared"])
programs = st.lists(
    st.tuples(st.sampled_from(TAGS[:3]), styles, st.booleans(), st.just(False)),
    min_size=1,
    max_size=3,
    unique_by=lambda loop: loop[0],
).map(tuple)


def swapped(program: Program, at: int) -> Program:
    one, other = at % len(program), (at + 1) % len(program)
    moved = list(program)
    moved[one], moved[other] = moved[other], moved[one]
    return tuple(moved)


def inserted(program: Program, at: int) -> Program:
    place = at % (len(program) + 1)
    return (
        *program[:place],
        ("d", ("inline", "own", "shared")[at % 3], False, False),
        *program[place:],
    )


def removed(program: Program, at: int) -> Program:
    return program[: at % len(program)] + program[at % len(program) + 1 :]


def renamed(program: Program, at: int) -> Program:
    return _with(program, at, 2)


def edited(program: Program, at: int) -> Program:
    return _with(program, at, 3)


def _with(program: Program, at: int, field: int) -> Program:
    loop: list[Any] = list(program[at % len(program)])
    loop[field] = not loop[field]
    changed_loop: Any = tuple(loop)
    return tuple(changed_loop if n == at % len(program) else it for n, it in enumerate(program))


changes = st.lists(
    st.tuples(st.sampled_from([swapped, inserted, removed, renamed, edited]), st.integers(0, 8)),
    max_size=2,
)


def changed_by(program: Program, made: list[tuple[Any, int]]) -> Program:
    for change, at in made:
        if program and not (change is inserted and any(loop[0] == "d" for loop in program)):
            program = change(program, at)
    return program


# -- lives ---------------------------------------------------------------------------------------


class Lives:
    """One run, executed by one process after another."""

    def __init__(self) -> None:
        self.world, self.clock = MemoryWorld(), testing.FakeClock(auto=True)
        done.clear()
        foreign.clear()

    def life(self, program: Program, dies_at: int | None = None) -> End:
        today[:] = [compiled(program)]
        work = Work(changed, "r", (), {})
        end = live(work, MemoryStore(self.world), self.clock, Ledger("r"), dies_at)
        assert not foreign, f"{foreign}: {program}"
        assert not [name for name, times in done.items() if times > 1], f"{done}: {program}"
        return end


def reason(end: End) -> str | None:
    return end.error.reason if isinstance(end.error, RunHeld) else None


def check(before: Program, after: Program, dies_at: int) -> None:
    """Kill a run of one program in a write, go on with another, and put the first one back."""
    lives = Lives()
    died = lives.life(before, dies_at)
    end = lives.life(after)
    assert end.error is None or reason(end) in ("diverged", "in_doubt"), end.error
    if before == after or died.died_in is None:
        assert end.error is None or reason(end) == "in_doubt", end.error
    if reason(end) == "diverged":
        again = lives.life(before)
        assert again.error is None or reason(again) == "in_doubt", "the first one put back"


@settings(max_examples=120, deadline=None)
@given(programs, changes, st.integers(1, 30))
def test_no_change_repeats_anything_or_mixes_up_loops(
    program: Program, made: list[tuple[Any, int]], dies_at: int
):
    check(program, changed_by(program, made), dies_at)


INLINE = (("a", "inline", False, False), ("b", "inline", False, False))
OWN = (("a", "own", False, False), ("b", "own", False, False))
SAME = (("a", "shared", False, False), ("b", "shared", False, False))
NAMED = (("a", "shared", True, False), ("b", "shared", True, False))
WRITES = (8, 9, 10, 11)
"""In the middle of the second turn, and between it and the one before."""


@pytest.mark.parametrize(
    "program", [INLINE, OWN, SAME, NAMED], ids=["inline", "own", "same", "named"]
)
@pytest.mark.parametrize("change", [swapped, inserted, removed])
def test_loops_that_moved_hold_the_run(program: Program, change: Any):
    for dies_at in WRITES:
        lives = Lives()
        assert lives.life(program, dies_at).died_in is not None
        end = lives.life(change(program, 0))
        assert reason(end) == "diverged", f"{dies_at}: {end}"


@pytest.mark.parametrize(
    "program", [INLINE, OWN, SAME, NAMED], ids=["inline", "own", "same", "named"]
)
def test_loops_edited_in_place_and_loops_behind_them_need_nothing(program: Program):
    for dies_at in WRITES:
        for after in (
            edited(program, 0),
            edited(program, 1),
            inserted(program, 2),
            swapped(program[:1], 0),
        ):
            lives = Lives()
            lives.life(program[:1] if len(after) == 1 else program, dies_at)
            assert reason(lives.life(after)) in (None, "in_doubt")


def by_number(patch: pytest.MonkeyPatch) -> None:
    """Loops are matched by their number in the branch, and by nothing else."""

    def by_key(frame: Any, call: Any, body: bytes = b"{}") -> Any:
        call.args_digest = None
        take_place(frame, call, b"{}")

    patch.setattr(loops, "take_place", by_key)
    patch.setattr(loops, "check_name", lambda _what, _name: "x")


@pytest.mark.parametrize(
    "program", [INLINE, OWN, SAME, NAMED], ids=["inline", "own", "same", "named"]
)
def test_matching_by_number_is_caught(monkeypatch: pytest.MonkeyPatch, program: Program):
    by_number(monkeypatch)
    with pytest.raises(AssertionError, match="got the state of"):
        for dies_at in WRITES:
            Lives().life(program, dies_at)
            check(program, swapped(program, 0), dies_at)
