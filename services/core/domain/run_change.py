"""What has changed of a run, and where in its history a watcher stands (engine section 3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.core.domain.run_record import Place, RunRecord, StepRecord

_CURSOR = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})-([0-9]{1,9})-([ae])")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A moment of a run. Everything that was committed before the transaction `xid` is known to who holds it.

    `server` names the history that `xid` counts in. `retries`: after another retry steps may have gone. `ended`: the
    run had ended, so there is no more to come unless it was retried.
    """

    server: str
    xid: int
    retries: int
    ended: bool

    @property
    def text(self) -> str:
        """As it travels."""
        return f"{self.server}-{self.xid}-{self.retries}-{'e' if self.ended else 'a'}"

    @staticmethod
    def parse(text: str) -> Cursor | None:
        """The cursor behind a text; None for one that is none."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            return None
        server, xid, retries, state = found.groups()
        return Cursor(server, int(xid), int(retries), state == "e")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A page of what has changed. `next`: the place behind which it goes on, None: this is the last page.

    `mark` is moved by every change of an active run; None: it has ended. `whole`: all steps are told, and those that
    are not have gone.
    """

    run: RunRecord
    steps: tuple[StepRecord, ...]
    whole: bool
    next: Place | None
    cursor: Cursor
    mark: int | None
