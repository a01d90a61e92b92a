"""The typed front. It installs the features: a new one adds its line to the tuple."""

from holdfast._features.alerts import FEATURE as ALERTS
from holdfast._features.budgets import FEATURE as BUDGETS
from holdfast._features.drift import FEATURE as DRIFT
from holdfast._features.measures import FEATURE as MEASURES
from holdfast._features.memory import FEATURE as MEMORY
from holdfast._features.questions import FEATURE as QUESTIONS
from holdfast._features.retention import FEATURE as RETENTION
from holdfast._features.rollback import FEATURE as ROLLBACK
from holdfast._features.schedules import FEATURE as SCHEDULES
from holdfast._features.watchdog import FEATURE as WATCHDOG
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
