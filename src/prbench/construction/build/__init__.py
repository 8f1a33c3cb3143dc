"""Build preference pairs of one's own: both responses are good, and only one serves this user's rubric."""

from prbench.construction.build.run import BuildResult, build
from prbench.construction.build.settings import BuildSettings, BuildStage, ClientOptions, PublishSettings

__all__ = ["BuildResult", "BuildSettings", "BuildStage", "ClientOptions", "PublishSettings", "build"]
