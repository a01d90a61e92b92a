"""What every store must do. Subclass `StoreContract`, say how a store is opened, and run pytest.

    class TestMine(StoreContract):
        def open_store(self, namespace="default"): ...

The suite knows nothing of how a store keeps things. A "process" is a handle: `second_store` is
the same data seen by another one, and `kill_owner` is the death of a process. There are no skips:
what one store cannot do is not part of the contract.
"""

from __future__ import annotations

from holdfast.testing.store_contract.asking import Asking
from holdfast.testing.store_contract.fleet import Fleet
from holdfast.testing.store_contract.forgetting import Forgetting
from holdfast.testing.store_contract.ground import FakeClock, entry, intent, new_run, started, step
from holdfast.testing.store_contract.measures import Measures
from holdfast.testing.store_contract.messages import Messages
from holdfast.testing.store_contract.owning import Owning
from holdfast.testing.store_contract.reading import Reading
from holdfast.testing.store_contract.remembering import Remembering
from holdfast.testing.store_contract.sharing import Sharing
from holdfast.testing.store_contract.spending import Spending
from holdfast.testing.store_contract.suspects import Suspects
from holdfast.testing.store_contract.writing import Writing

__all__ = ["FakeClock", "StoreContract", "entry", "intent", "new_run", "started", "step"]


class StoreContract(
    Writing,
    Owning,
    Sharing,
    Reading,
    Suspects,
    Messages,
    Fleet,
    Asking,
    Spending,
    Remembering,
    Measures,
    Forgetting,
):
    """All tests of the contract."""
