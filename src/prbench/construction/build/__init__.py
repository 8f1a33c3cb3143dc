"""Build preference pairs of one's own: both responses are good, and only one serves this user's rubric."""

from prbench.construction.build.building import Built, build
from prbench.construction.build.models import Means
from prbench.construction.build.settings import BuildSettings, PublishSettings, Stage

__all__ = ["BuildSettings", "Built", "Means", "PublishSettings", "Stage", "build"]
