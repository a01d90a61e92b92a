"""One task, one e-mail, however often and from wherever it is asked for."""

import tempfile

import holdfast
from holdfast import effect, flow

outbox: list[str] = []


@effect(key="welcome:{task_id}")
def send_email(task_id: str, address: str) -> dict:
    outbox.append(f"{task_id} to {address}")
    return {"ok": True, "status": f"sent_to:{address}"}


@flow
def welcome(task_id: str, address: str) -> dict:
    return send_email(task_id, address)


def send_email_once(store: holdfast.types.Store, run_id: str, task_id: str, address: str) -> dict:
    result = welcome.run(run_id, task_id, address)
    last = [entry for entry in store.history(run_id) if entry.step is not None][-1]
    if last.kind == "skipped_duplicate":  # its result is the one that the first call recorded
        return {"ok": result["ok"], "status": str(last.kind)}
    return result


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        print(send_email_once(store, "monday", "task-001", "ada@example.com"))
        print(send_email_once(store, "tuesday", "task-001", "ada@example.com"))
        print("sent:", outbox)


if __name__ == "__main__":
    main()
