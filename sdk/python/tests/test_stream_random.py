"""Random programs over a stream with random accidents: each body once, results right, each invocation ended once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_engine import EngineStream, SentOp, StreamEngine

COMMITTED, ALREADY = 1, 2
SLOT = 1

Program = Any
"""A leaf (`run`, `fail`, `send`, `sleep`), or `seq` or `par` with programs in it."""

leaves = st.sampled_from(["run", "run", "fail", "send", "sleep"])
programs = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["seq", "par"]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=8,
)


class Story:
    """A program as a workflow, and what its bodies did."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ran: Counter[str] = Counter()

    async def perform(self, step: AsyncStep) -> Any:
        """Interprets the program; ids are places in it."""
        return await self._perform(step, self.program, "p")

    async def _perform(self, step: AsyncStep, program: Program, place: str) -> Any:
        if program == "run":
            return await step.run(place, self._body, place, False)
        if program == "fail":
            try:
                return await step.run(place, self._body, place, True)
            except StepError as error:
                return error.message
        if program == "send":
            return (await step.send_event(place, {"name": "told"}))["ids"]
        if program == "sleep":
            return await step.sleep(place, "1s")
        kind, parts = program
        places = [(part, f"{place}.{number}") for number, part in enumerate(parts)]
        if kind == "seq":
            return [await self._perform(step, part, at) for part, at in places]
        return list(await asyncio.gather(*(self._perform(step, part, at) for part, at in places)))

    async def _body(self, place: str, fails: bool) -> str:
        self.ran[place] += 1
        await asyncio.sleep(0)
        if fails:
            raise ValueError(f"{place} fails")
        return place

    def expected(self, program: Program = None, place: str = "p") -> Any:
        """What the workflow must return."""
        program = self.program if program is None else program
        simple = {"run": place, "fail": f"{place} fails", "send": [place], "sleep": None}
        if isinstance(program, str):
            return simple[program]
        return [self.expected(part, f"{place}.{number}") for number, part in enumerate(program[1])]


class Accidents:
    """An engine that stores what comes, and lets acknowledgements wait, change places, double, and get lost."""

    def __init__(self, engine: StreamEngine, seed: int) -> None:
        self.memo: dict[str, Any] = {}
        self.open: set[str] = set()
        self.output: Any = None
        self._engine = engine
        self._random = random.Random(seed)
        self._breaks = 4
        self._yields = 3
        self._invocation = 0
        self._committed: dict[int, dict[str, Any] | None] = {}
        self._unanswered: list[SentOp] = []
        self._stream: EngineStream
        self._key: pb.InvocationKey
        self._is_last = False

    async def run(self) -> None:
        """Until the run has ended."""
        self._stream = await self._engine.accept()
        self._execute()
        while self.output is None:
            if self._is_last and not self._unanswered:
                self._execute()
            await self._meet()

    def _execute(self) -> None:
        self._invocation += 1
        self._committed, self._is_last = {}, False
        for step_id in sorted(self.open):
            if self._random.random() < 0.7 or not self._is_resting():
                self._wake(step_id)
        self._key = self._stream.execute("w", self.memo, invocation=self._invocation, open_steps=sorted(self.open))

    def _is_resting(self) -> bool:
        return len(self.open) > 1

    def _wake(self, step_id: str) -> dict[str, Any]:
        self.open.discard(step_id)
        self.memo[step_id] = {"status": "completed", "output": None}
        return dict(self.memo[step_id])

    async def _meet(self) -> None:
        """One message of the worker, or an answer, or an accident."""
        choice = self._random.random()
        if self._unanswered and choice < 0.5:
            self._answer(self._unanswered.pop(self._random.randrange(len(self._unanswered))))
        elif self._breaks and choice > 0.85:
            self._breaks -= 1
            await self._break()
        elif not self._unanswered or not self._stream.is_silent():
            if self.open and self._random.random() < 0.3 and not self._is_last:
                step_id = self._random.choice(sorted(self.open))
                self._stream.deliver(self._key, step_id, self._wake(step_id))
            self._receive(await self._stream.next())

    def _receive(self, message: pb.WorkerMessage) -> None:
        kind = message.WhichOneof("kind")
        if kind == "end":
            assert message.end.key == self._key
            assert not self._is_last, "an invocation ends once"
            assert not self._unanswered
            self._is_last = True
        elif kind == "op":
            self._store(SentOp(message.op))

    def _store(self, op: SentOp) -> None:
        assert op.message.key == self._key
        assert not self._is_last, "nothing comes after the last op"
        assert op.number == max(self._committed, default=0) + 1
        self._is_last = op.last
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
            leave = SLOT
        stored = self._committed[op.number]
        if outcome == ALREADY and stored is None and op.id in self.memo:
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


async def play(program: Program, seed: int) -> None:
    story = Story(program)
    wf = Workflows(signing_key=KEY)

    @wf.workflow("w", retries=0)
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        return await story.perform(step)

    async with StreamEngine() as engine, wf.connection(engine.url, drain_seconds=0):
        accidents = Accidents(engine, seed)
        await accidents.run()
    output = story.expected()
    assert accidents.output == ("nothing" if output is None else output)
    assert set(story.ran.values()) <= {1}, story.ran


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=st.integers(0, 2**32))
def test_each_body_runs_once_whatever_happens_to_the_stream(program: Program, seed: int) -> None:
    asyncio.run(play(program, seed))
