"""Planner quality: how much of what a user really looks for does a planner foresee, and how much does it make up?"""

from prbench.insight.planner.measure import PLANNED, PlannerSettings, measure_planner
from prbench.insight.planner.records import PlanRow
from prbench.insight.planner.summary import summarise_plans

__all__ = ["PLANNED", "PlanRow", "PlannerSettings", "measure_planner", "summarise_plans"]
