"""Build preference pairs of one's own: both responses are good, and only one serves this user's rubric."""

from prbench.construction.build.building import BuildResult, build
from prbench.construction.build.models import ClientOptions
from prbench.construction.build.settings import BuildSettings, PublishSettings, Stage

__all__ = ["BuildResult", "BuildSettings", "ClientOptions", "PublishSettings", "Stage", "build"]
