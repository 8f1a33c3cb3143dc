"""What the tests of trainers share."""

from tests.support.command_line import prbench

__all__ = ["prbench"]
