"""Which step calls of an async workflow may be live: those of which it is certain that a replay comes in their order.

Ids are given in call order, and results are stored under them. With stored results nothing takes time, so tasks that
run side by side come to their calls in another order than they do while steps take theirs: a chain of steps gets all
its ids before the next chain gets one. Only the workflow function's own calls keep theirs, as long as its code runs
from step to step, or waits for step calls alone while no other task of the workflow exists.
"""

from __future__ import annotations

import asyncio

from ..workflow_code import WorkflowCode
from .live_replay import LiveReplay


class Turns:
    """The calls of one invocation, in the state before the first new step, or after it (`is_live`)."""

    def __init__(self, replay: LiveReplay, code: WorkflowCode) -> None:
        self._replay = replay
        self._code = code
        self._is_live = False
        self._is_unsure = False
        """Whether the workflow function may have gone on in another order than it does in a replay."""
        self._alone: str | None = None
        self._out_of_order: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_alone(self) -> bool:
        """Whether a step is executed that ends the invocation."""
        return self._alone is not None

    def begin(self, step_id: str, *, is_in_main: bool) -> bool:
        """A call has got its id. Whether that is the id which it has in a replay."""
        self._code.has_company |= not is_in_main
        if is_in_main and not self._is_unsure:
            return True
        self._out_of_order.add(step_id)
        return not self._is_live

    def take(self, step_id: str) -> bool:
        """Whether a call may be answered or executed now; otherwise its turn is another invocation's, or later."""
        if self._alone is not None:
            return False
        if step_id in self._out_of_order and self._is_live:
            return False
        if self._replay.knows(step_id):
            return True
        self._is_live = True
        if step_id in self._out_of_order and not self._replay.waits_for(step_id):
            self._alone = step_id
        return True

    def went_on(self, *, others_are_pending: bool) -> None:
        """The workflow function goes on after it has waited for something other than a step call of its own."""
        self._is_unsure |= self._is_live and (self._code.has_company or others_are_pending)

    async def wait(self) -> None:
        """Returns when calls may have their turn; most never do, and are unwound with the invocation."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def start_over(self) -> None:
        """Nothing has come of the steps that were begun, which user code gave up: the next call is the first again."""
        self._is_live, self._alone = False, None
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class Queue:
    """Calls that go on in the order in which they were made, as those of a replay do."""

    def __init__(self) -> None:
        self._places: dict[object, asyncio.Future[None] | None] = {}

    def __contains__(self, place: object) -> bool:
        """Whether a call has its place here."""
        return place in self._places

    def append(self, place: object) -> None:
        """A call is made."""
        self._places[place] = None

    def remove(self, place: object) -> None:
        """It has gone on, or never does."""
        if place in self._places:
            del self._places[place]
            first = next(iter(self._places.values()), None)
            if first is not None and not first.done():
                first.set_result(None)

    async def first(self, place: object) -> None:
        """Returns when those that were made before have gone on."""
        while place in self._places and next(iter(self._places)) != place:
            turn = self._places[place] = asyncio.get_running_loop().create_future()
            await turn
