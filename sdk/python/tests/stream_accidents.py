"""An engine over a stream to which things happen: what it answers waits, changes places, doubles, and gets lost."""

from __future__ import annotations

import random
from typing import Any

from runr.workflows.v1 import worker_service_pb2 as pb

from sdk.python.tests.stream_engine import EngineStream, SentOp, StreamEngine

COMMITTED, ALREADY = 1, 2
SLOT = 1
_MOST = 500
"""Invocations of a run."""


class Accidents:
    """An engine that stores what comes, and lets acknowledgements wait, change places, double, and get lost."""

    def __init__(self, engine: StreamEngine, seed: int, *, losses: int = 0, retries: bool = False) -> None:
        """`losses`: how often an invocation is given up in the middle, with what it was about to tell; `retries`: a
        step that fails is tried once more.
        """
        self.memo: dict[str, Any] = {}
        self.open: set[str] = set()
        self.backoffs: set[str] = set()
        """Open steps that are tried again."""
        self.invocations = 0
        self.output: Any = None
        self._engine = engine
        self._random = random.Random(seed)
        self._breaks = 4
        self._yields = 3
        self._losses = losses
        self._retries = retries
        self._committed: dict[int, dict[str, Any] | None] = {}
        self._unanswered: list[SentOp] = []
        self._stream: EngineStream
        self._key: pb.InvocationKey
        self._is_last = False
        self._again = False
        self._has_progressed = False
        self._has_left = False
        self._failed: set[str] = set()

    async def run(self) -> None:
        """Until the run has ended."""
        self._stream = await self._engine.accept()
        self._execute()
        while self.output is None:
            if self._is_last and not self._unanswered:
                self._execute()
            await self._meet()

    def _execute(self) -> None:
        self.invocations += 1
        assert self.invocations < _MOST, "the run makes no progress"
        self._committed, self._is_last, self._has_progressed = {}, False, False
        for step_id in () if self._again else sorted(self.open):
            if self._random.random() < 0.7 or not self._is_resting():
                self._wake(step_id)
        self._again = False
        self._key = self._stream.execute("w", self.memo, invocation=self.invocations, open_steps=sorted(self.open))

    def _is_resting(self) -> bool:
        return len(self.open) > 1

    def _wake(self, step_id: str) -> dict[str, Any]:
        self.open.discard(step_id)
        if step_id in self.backoffs:
            self.backoffs.discard(step_id)
            return {}
        self.memo[step_id] = {"status": "completed", "output": None}
        return dict(self.memo[step_id])

    async def _meet(self) -> None:
        """One message of the worker, or an answer, or an accident."""
        choice = self._random.random()
        if self._losses and not self._is_last and choice < 0.1:
            self._losses -= 1
            self._unanswered.clear()
            self._execute()
        elif self._unanswered and choice < 0.5:
            self._answer(self._unanswered.pop(self._random.randrange(len(self._unanswered))))
        elif self._breaks and choice > 0.85:
            self._breaks -= 1
            await self._break()
        elif not self._unanswered or not self._stream.is_silent():
            sleeping = sorted(self.open - self.backoffs)
            if sleeping and self._random.random() < 0.3 and not self._is_last:
                step_id = self._random.choice(sleeping)
                self._stream.deliver(self._key, step_id, self._wake(step_id))
                self._has_progressed = True
            self._receive(await self._stream.next())

    def _receive(self, message: pb.WorkerMessage) -> None:
        kind = message.WhichOneof("kind")
        if kind in ("end", "op") and getattr(message, kind).key.invocation < self.invocations:
            return  # of one that was given up
        if kind == "end":
            assert message.end.key == self._key
            assert not self._is_last, "an invocation ends once"
            assert not self._unanswered
            assert message.end.again <= self._has_progressed, "again and again, without progress"
            assert self.open or self._has_progressed or self._has_left, "an end without a reason"
            self._is_last, self._again = True, message.end.again
        elif kind == "op":
            self._store(SentOp(message.op))

    def _store(self, op: SentOp) -> None:
        assert op.message.key == self._key
        assert not self._is_last, "nothing comes after the last op"
        assert op.number == max(self._committed, default=0) + 1
        self._is_last = op.last
        self._has_progressed = True
        self._committed[op.number] = self._commit(op)
        self._unanswered.append(op)

    def _commit(self, op: SentOp) -> dict[str, Any] | None:
        fields = op.fields
        if fields["op"] == "run_completed":
            self.output = fields["output"] if fields["output"] is not None else "nothing"
            return None
        assert fields["op"] != "run_failed", fields
        assert op.id not in self.memo
        assert op.id not in self.open
        if fields["op"] == "sleep":
            self.open.add(op.id)
            return None
        if fields["op"] == "step_failed" and self._retries and op.id not in self._failed:
            self._failed.add(op.id)
            self.open.add(op.id)
            self.backoffs.add(op.id)
            return None
        stored = {"status": "completed", "output": fields.get("output")}
        if fields["op"] == "step_failed":
            stored = {"status": "failed", "error": fields["error"]}
        elif fields["op"] == "send_event":
            stored = {"status": "completed", "output": {"ids": [op.id]}}
        self.memo[op.id] = stored
        return None if fields["op"] == "step_completed" else stored

    def _answer(self, op: SentOp, outcome: int = COMMITTED) -> None:
        leave = 0
        if self._yields and self._random.random() < 0.1:
            self._yields -= 1
            self._has_left = True
            leave = SLOT
        stored = self._committed[op.number]
        if outcome == ALREADY and stored is None and op.id in self.memo and op.fields["op"] != "step_failed":
            stored = self.memo[op.id]
        self._stream.ack(op, stored, outcome=outcome, leave=leave)
        if self._random.random() < 0.2:
            self._stream.ack(op, stored, outcome=ALREADY)

    async def _break(self) -> None:
        self._stream.drop()
        self._stream = await self._engine.accept()
        resume = await self._stream.expect("resume")
        answer = pb.ResumeAck()
        lost, self._unanswered = self._unanswered, []
        for item in resume.items:
            answered = answer.items.add(key=item.key)
            if item.key == self._key:
                answered.resumed_as.CopyFrom(item.key)
        self._stream.say(pb.EngineMessage(resume_ack=answer))
        current = [item for item in resume.items if item.key == self._key]
        if not current and not self._is_last:
            self._execute()  # it never arrived
            return
        for op in (SentOp(op) for item in current for op in item.unacked):
            if op.number not in self._committed:
                self._store(op)
                self._unanswered.remove(op)
            self._answer(op, ALREADY)
        assert {op.number for op in lost} <= {op.number for item in current for op in item.unacked}
