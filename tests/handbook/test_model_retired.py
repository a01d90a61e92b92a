"""A model was retired: runs that stood in the middle are asked about, failed ones are taken up."""

from __future__ import annotations

from tests.handbook.world import World

PROGRAM = """
MODEL = os.environ["MODEL"]


@step(versions={"model": MODEL})
def think(question):
    did(f"thought with {MODEL}")
    return f"{question} says {MODEL}"


@step
def call(model):
    if model == "old":
        raise LookupError("model old was retired")
    return model


@step
def pause(text):
    if did(f"paused {text}") == 1:
        die()
    return text


@flow(on_drift={"model": "hold"})
def advise(question):
    thought = think(question)
    pause(question)
    return thought


@flow
def ask_model():
    return call(MODEL)


if __name__ == "__main__":
    for run_id in ("keeps", "redoes"):
        in_a_process(advise.run, run_id, run_id)
    if MODEL == "old":
        in_a_process(ask_model.run, "failing")
"""


def test_one_goes_on_one_is_redone_and_one_had_failed(world: World):
    world.program(PROGRAM)
    world.env["MODEL"] = "old"
    assert world.shell("python agent.py").returncode == 0
    assert world.status("failing") == "failed"
    world.env["MODEL"] = "new"
    assert world.shell("python agent.py").returncode == 0
    for run_id in ("keeps", "redoes"):
        assert world.status(run_id) == "held: drift"
    assert world.did("thought with new") == 0

    world.says("held: drift", world.paste("runs --held-reason drift"))
    assert "old" in world.paste("explain", RUN="keeps")
    assert "model" in world.paste("resume RUN --dry-run", RUN="keeps")
    assert world.did("thought with new") == 0
    world.paste("resume RUN --keep", RUN="keeps")
    world.paste("resume RUN --redo", RUN="redoes")
    world.paste("resume --failed")
    with world.started("holdfast worker agent.py"):
        for run_id in ("keeps", "redoes", "failing"):
            world.until(run_id, "completed")
    assert "keeps says old" in world.paste("show", RUN="keeps")
    assert "redoes says new" in world.shell("holdfast show redoes").stdout
    assert (world.did("thought with old"), world.did("thought with new")) == (2, 1)
