"""The features' parts of the operator side: one static tuple, sorted by seam. A new feature adds its line."""

from __future__ import annotations

from holdfast._features.budgets.operator import OPERATOR_SIDE as BUDGETS
from holdfast._features.rollback.operator import OPERATOR_SIDE as ROLLBACK
from holdfast._features.watchdog.operator import OPERATOR_SIDE as WATCHDOG

SIDES = (ROLLBACK, BUDGETS, WATCHDOG)
"""In the order in which explanations have their sections."""

SECTIONS = tuple(it.explain for it in SIDES if it.explain)
WARNINGS = tuple(it.warn for it in SIDES if it.warn)
STATUSES = {status: explain for it in SIDES for status, explain in it.statuses.items()}
HOLDS = {reason: holds for it in SIDES for reason, holds in it.holds.items()}
FIGURES = {name: read for it in SIDES for name, read in it.figures.items()}
