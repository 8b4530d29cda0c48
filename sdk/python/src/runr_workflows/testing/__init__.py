"""A kit for tests: workflows run in memory, days pass in milliseconds, steps fail and processes die on demand."""

from .crashes import every_crash
from .engine import TestEngine
from .events import Sent
from .history import Divergence, replay
from .options import SendOptions, StartOptions
from .script import Fault, UnusedError, fails, returns
from .stored import Entry, StoredStep, TestRun, Timeline

__all__ = [
    "Divergence",
    "Entry",
    "Fault",
    "SendOptions",
    "Sent",
    "StartOptions",
    "StoredStep",
    "TestEngine",
    "TestRun",
    "Timeline",
    "UnusedError",
    "every_crash",
    "fails",
    "replay",
    "returns",
]
