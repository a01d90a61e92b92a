"""A deploy changed the flow: a run is held, and goes on with the old code, or with the new."""

from __future__ import annotations

from tests.handbook.world import World

OLD = """
@step
def search(topic):
    did(f"searched {topic}")
    return topic


@effect
def mail(text):
    did(f"mailed {text}")
    return text


@step
def pause(topic):
    if did(f"paused {topic}") == 1:
        die()
    return topic


@flow
def report(topic):
    mail(search(topic))
    return pause(topic)


if __name__ == "__main__":
    for run_id in ("back", "forward", "third", "fourth"):
        in_a_process(report.run, run_id, run_id)
"""
NEW = OLD.replace(
    "    mail(search(topic))\n", "    check(topic)\n    mail(search(topic))\n"
).replace("@flow", '@step\ndef check(topic):\n    did(f"checked {topic}")\n\n\n@flow')


def test_the_old_code_ends_one_and_the_new_code_another(world: World):
    world.program(OLD)
    assert world.shell("python agent.py").returncode == 0
    world.program(NEW)
    assert world.shell("python agent.py").returncode == 0
    for run_id in ("back", "forward", "third", "fourth"):
        assert world.status(run_id) == "held: diverged"
    assert "checked" not in (world.folder / "done.log").read_text()

    world.says("held: diverged", world.paste("runs --held-reason diverged"))
    assert "Effects that have happened" in world.paste("explain", RUN="forward")
    world.paste("resume RUN", RUN="forward")
    assert world.shell("holdfast run agent.py:report forward").returncode == 0
    assert world.did("checked forward") == 1

    world.program(OLD)
    world.paste("run ", FLOW="report", RUN="back")
    assert world.did("checked back") == 0
    told = world.paste("resume --diverged", FLOW="report")
    assert "Resumed: 2 of flow report." in told
    with world.started("holdfast worker agent.py"):
        for run_id in ("third", "fourth"):
            world.until(run_id, "completed")
            assert world.did(f"checked {run_id}") == 0
    for run_id in ("back", "forward", "third", "fourth"):
        assert (world.did(f"searched {run_id}"), world.did(f"mailed {run_id}")) == (1, 1)
    assert "completed" in world.paste("show", RUN="back")
    world.paste("doctor")
