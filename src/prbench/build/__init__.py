"""Build preference pairs of one's own: both responses are good, and only one serves this user's rubric."""

from prbench.build.building import Built, build
from prbench.build.models import Means
from prbench.build.settings import BuildSettings, PublishSettings, Stage

__all__ = ["BuildSettings", "Built", "Means", "PublishSettings", "Stage", "build"]
