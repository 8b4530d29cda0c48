"""How often Python looks for cycles: seldom, because a service makes few and many objects of every call are alive."""

from __future__ import annotations

import gc

_YOUNG = 50_000
"""New objects between two looks at the young ones. Python's own 700 costs a busy service a sixth of its time."""


def look_for_cycles_seldom() -> None:
    """Call it once, when the process has been put together: what exists now stays, and is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
