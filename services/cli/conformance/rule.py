"""A rule of the protocol page as the conformance runner holds it against a function, and what it found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from services.cli.conformance.probe import Probe

State = Literal["ok", "failed", "not applicable"]
Check = Callable[["Probe"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`section` is that of the protocol page. `workflow` must be served, and `capability` listed, for it to apply."""

    name: str
    section: int
    check: Check
    workflow: str | None = None
    capability: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a rule. `reason` says why it does not apply; the other three are of one that has failed."""

    rule: Rule
    state: State
    reason: str = ""
    sent: str = ""
    expected: str = ""
    came: str = ""


class Broken(Exception):
    """The function breaks the rule that is checked."""

    def __init__(self, sent: str, expected: str, came: str) -> None:
        super().__init__(f"sent {sent}; expected {expected}; came {came}")
        self.sent = sent
        self.expected = expected
        self.came = came


class KeyRefused(Exception):
    """The function refuses the key itself, so that every rule would fail in the same way."""

    def __init__(self, sent: str, came: str) -> None:
        super().__init__(f"sent {sent}; came {came}")
        self.sent = sent
        self.came = came


class NotApplicable(Exception):
    """The rule is about something that this function, by right, does not do."""
