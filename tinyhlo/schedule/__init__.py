"""From a Graph to a Program: which kernels, in which order, in which memory."""

from tinyhlo.schedule.plan import schedule
from tinyhlo.schedule.program import Program

__all__ = ["Program", "schedule"]
