"""A charge whose answer never came. Did it happen? What each policy does about it."""

import tempfile
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, Retry, effect, flow, idempotency_key
from holdfast.errors import RunHeld, StepFailed


class Bank:
    """Stands for a payment service: it de-duplicates by key, and loses its first answer."""

    def __init__(self) -> None:
        self.charges: dict[str, dict[str, Any]] = {}
        self.requests = 0

    def charge(self, key: str, amount: int) -> dict[str, Any]:
        self.requests += 1
        self.charges.setdefault(key, {"id": f"ch-{len(self.charges) + 1}", "amount": amount})
        if self.requests == 1:
            raise TimeoutError("the answer was lost")
        return self.charges[key]


bank = Bank()


@effect  # on_doubt="hold": a person settles it
def charge_or_ask(amount: int) -> dict[str, Any]:
    return bank.charge(idempotency_key(), amount)


@effect(on_doubt="retry", retry=Retry(initial_wait_s=0.01))  # for services that honour the key
def charge_or_retry(amount: int) -> dict[str, Any]:
    return bank.charge(idempotency_key(), amount)


@effect(on_doubt="fail")  # at most once: the flow gets StepFailed
def charge_or_fail(amount: int) -> dict[str, Any]:
    return bank.charge(idempotency_key(), amount)


@effect
def charge_or_look(amount: int) -> dict[str, Any]:
    return bank.charge(idempotency_key(), amount)


@charge_or_look.on_doubt  # for services that can be asked
def look(amount: int) -> Any:
    found = bank.charges.get(idempotency_key())
    return Done(found) if found and found["amount"] == amount else NOT_DONE


POLICIES = {
    "ask": charge_or_ask,
    "retry": charge_or_retry,
    "fail": charge_or_fail,
    "function": charge_or_look,
}


@flow
def order(policy: str, amount: int) -> str:
    try:
        return POLICIES[policy](amount)["id"]
    except StepFailed:
        return "not charged, as far as we know"


def main() -> None:
    global bank
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db") as store,
    ):
        for policy in POLICIES:
            bank = Bank()
            try:
                result = order.run(f"order-{policy}", policy, 5)
            except RunHeld as held:
                print(f"{policy}: held ({held.reason}) at {held.step}")
                # Somebody looks at the bank's page, finds the charge, and says so.
                found = next(iter(bank.charges.values()))
                store.settle(held.run_id, held.step, Done(found), actor="ops")
                result = order.run(f"order-{policy}", policy, 5)
            print(f"{policy}: {result}; {bank.requests} requests, {len(bank.charges)} charges")


if __name__ == "__main__":
    main()
