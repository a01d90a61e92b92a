"""What every store must do. Subclass `StoreContract`, say how a store is opened, and run pytest.

    class TestMine(StoreContract):
        def open_store(self, namespace="default"): ...

The suite knows nothing of how a store keeps things. A "process" is a handle: `second_store` is
the same data seen by another one, and `kill_owner` is the death of a process. There are no skips:
what one store cannot do is not part of the contract.
"""

from __future__ import annotations

from tests.contract.budgets import Spending
from tests.contract.fleet import Fleet
from tests.contract.ground import FakeClock, entry, intent, new_run, started, step
from tests.contract.keys import Sharing
from tests.contract.measures import Measures
from tests.contract.memories import Remembering
from tests.contract.messages import Messages
from tests.contract.ownership import Owning
from tests.contract.questions import Asking
from tests.contract.reads import Reading
from tests.contract.removal import Forgetting
from tests.contract.suspects import Suspects
from tests.contract.writes import Writing

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
