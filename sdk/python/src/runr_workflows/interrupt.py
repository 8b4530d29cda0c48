"""How an invocation is unwound once its op is known."""

from __future__ import annotations


class StepInterrupt(BaseException):
    """Ends the invocation at a step call; never an error.

    A BaseException, so that `except Exception` in user code lets it pass. Code that catches it anyway changes nothing:
    the op is already recorded and every later step call raises it again (protocol section 7, "Swallowing").
    """
