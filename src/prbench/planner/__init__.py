"""Planner quality: how much of what a user really looks for does a planner foresee, and how much does it make up?"""

from prbench.planner.measure import PLANNED, PlannerSettings, measure_planner
from prbench.planner.records import PlanRow
from prbench.planner.summary import summarise_plans

__all__ = ["PLANNED", "PlanRow", "PlannerSettings", "measure_planner", "summarise_plans"]
