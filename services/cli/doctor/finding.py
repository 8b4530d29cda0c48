"""One thing that `runr doctor` has looked at: what, whether it is well, and what to do if not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """How it is. `WATCH`: it works, and somebody should look."""

    OK = "ok"
    WATCH = "watch"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `reason` says what is the matter, `advice` what to do; empty when all is well."""

    subject: str
    reason: str = ""
    advice: str = ""
    state: State = State.OK

    @classmethod
    def of(cls, subject: str, reason: str, advice: str = "", *, state: State = State.FAIL) -> Finding:
        """All is well if there is no reason."""
        return cls(subject, reason, advice, state) if reason else cls(subject)

    def lines(self) -> str:
        """For people."""
        first = f"{self.state.value:5} {self.subject}"
        said = f"{first}: {self.reason}" if self.reason else first
        return f"{said}\n      → {self.advice}\n" if self.advice else f"{said}\n"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "state": self.state.value.lower()}
