"""A report in three steps. It fails in `summarize`, is run again, and goes on from there."""

import tempfile

import holdfast
from holdfast import plan
from holdfast.errors import RunFailed

broken = True


def load_data(state: dict) -> dict:
    state["data"] = ["refund policy", "invoice policy", "address change policy"]
    return state


def summarize(state: dict) -> dict:
    if broken:
        raise RuntimeError("crash_on_summarize")
    state["summary"] = ";".join(state["data"])
    return state


def write_report(state: dict) -> dict:
    state["report"] = f"Final report: {state['summary']}"
    return state


report = plan("report", [load_data, summarize, write_report])


def completed_steps(store: holdfast.types.Store, run_id: str) -> list[str]:
    return [step.name for step in store.get(run_id).steps if step.status == "completed"]


def main() -> None:
    global broken
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        try:
            report.run("report-1", {})
        except RunFailed:
            failed = next(e for e in store.history("report-1") if e.kind == "step_failed")
            print("first run crashed:", failed.body["error"]["message"])
        done = completed_steps(store, "report-1")
        print("checkpoint after crash:", {"current_index": len(done), "completed_steps": done})

        broken = False
        final = report.run("report-1", {})  # the same id: load_data is not executed again
        print("\nrestored final state:")
        done = completed_steps(store, "report-1")
        print({"completed_steps": done, "report": final["report"]})

        print("\nevent types:")
        print([str(e.kind) for e in store.history("report-1") if e.step is not None])


if __name__ == "__main__":
    main()
