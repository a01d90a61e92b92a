"""The typed front. It installs the features, so that the runtime has them however it is reached.

A new feature adds its line to the tuple; nothing else outside its folder names it.
"""

from holdfast._features.alerts.runtime import FEATURE as ALERTS
from holdfast._features.budgets.runtime import FEATURE as BUDGETS
from holdfast._features.drift.runtime import FEATURE as DRIFT
from holdfast._features.measures.runtime import FEATURE as MEASURES
from holdfast._features.memory.reads import FEATURE as MEMORY
from holdfast._features.questions.lookup import FEATURE as QUESTIONS
from holdfast._features.retention.runtime import FEATURE as RETENTION
from holdfast._features.rollback.runtime import FEATURE as ROLLBACK
from holdfast._features.schedules.runtime import FEATURE as SCHEDULES
from holdfast._features.watchdog.watchdog_loop import FEATURE as WATCHDOG
from holdfast._runtime.feature import installed

FEATURES = (
    MEASURES,
    BUDGETS,
    DRIFT,
    QUESTIONS,
    MEMORY,
    ROLLBACK,
    SCHEDULES,
    RETENTION,
    WATCHDOG,
    ALERTS,
)
"""In the order in which the runtime calls them."""

installed.install(FEATURES)
