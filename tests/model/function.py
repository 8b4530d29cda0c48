"""The functions of the model: they replay scripts as an SDK does, and witness what the engine does to them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from services.core.runtime.ids import ulid_uuid
from services.core.store.database import Database
from services.executor.function_client import RawAnswer, RequestKind, Target
from tests.model.script import Json, Work, Workflow, answer, output_of

Place = tuple[UUID, str]
"""A step of a run."""

Body = tuple[UUID, str, int]
"""A step of a run in one of its lives: a retry begins another."""

Gate = tuple[str, str, int, object]
"""URL of the project, workflow, place and key of a concurrency limit."""


@dataclass
class Witness:
    """What functions have seen. `faults` are what they must never see."""

    faults: list[str] = field(default_factory=list)
    lives: Counter[UUID] = field(default_factory=Counter)
    bodies: Counter[Body] = field(default_factory=Counter)
    failures: Counter[Body] = field(default_factory=Counter)
    failed: Counter[Place] = field(default_factory=Counter)
    stumbled: Counter[Place] = field(default_factory=Counter)
    answered: dict[Place, set[str]] = field(default_factory=lambda: defaultdict(set))
    inside: dict[str, UUID] = field(default_factory=dict)
    """Token of each body that runs now → its run."""
    late: set[str] = field(default_factory=set)
    """Tokens of bodies that ran when their run had ended and was retried: nothing of theirs may be stored."""
    shown: dict[Place, str] = field(default_factory=dict)
    running: dict[Gate, Counter[UUID]] = field(default_factory=lambda: defaultdict(Counter))
    requests: int = 0

    def show(self, run: UUID, request: Json, workflow: Workflow) -> None:
        """Look at what an invocation was shown of the run's memory."""
        self.requests += 1
        order, steps = request["step_order"], request["steps"]
        if not workflow.begins_so(order) or set(order) != set(steps):
            self.faults.append(f"run {run} was shown steps {order}, {sorted(steps)}, its script is {workflow.steps}")
        for id, memo in steps.items():
            self.show_step(run, id, memo)

    def show_step(self, run: UUID, id: str, memo: Json) -> None:
        """Look at what the code was shown of one step."""
        text = json.dumps(memo, sort_keys=True)
        before = self.shown.setdefault((run, id), text)
        if before != text:
            self.faults.append(f"step {id} of run {run} was {before} and is now {text}")

    def tokens_inside(self, run: UUID) -> set[str]:
        """The tokens of the run's bodies that run now."""
        return {token for token, inside in self.inside.items() if inside == run}

    def forget_failures(self, run: UUID) -> None:
        """The run is about to be retried: memoized failures may go."""
        for place in [place for place in self.shown if place[0] == run]:
            if json.loads(self.shown[place])["status"] == "failed":
                del self.shown[place]


class Functions:
    """`FunctionClient` of all projects. Slow bodies wait until `let_go`, or for nothing once `open` is set."""

    def __init__(self, workflows: Mapping[str, Workflow], database: Database) -> None:
        self.witness = Witness()
        self.open = False
        self._workflows = workflows
        self._database = database
        self._slow: list[asyncio.Future[None]] = []

    def let_go(self, share: float = 1.0) -> None:
        """Let a share of the slow bodies go on, the oldest first."""
        waiting = [each for each in self._slow if not each.done()]
        count = round(len(waiting) * share)
        for each in waiting[:count]:
            each.set_result(None)
        self._slow = waiting[count:]

    @property
    def waiting(self) -> int:
        """Slow bodies that wait."""
        return sum(not each.done() for each in self._slow)

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """See `FunctionClient.call`."""
        request = json.loads(request_text)
        workflow = self._workflows[request["workflow"]]
        run = ulid_uuid(request["run"]["id"])
        self.witness.show(run, request, workflow)
        ops = await self._ops(target.url, run, request, workflow)
        return RawAnswer(200, json.dumps({"runr_workflow": "v1", "ops": ops}).encode())

    async def _ops(self, url: str, run: UUID, request: Json, workflow: Workflow) -> list[Json]:
        """What one invocation comes to: results, as many as are asked for, and at most one op of another kind."""
        most = request.get("max_ops", 1)
        if most > (workflow.checkpoint or 1):
            self.witness.faults.append(f"run {run} was asked for {most} ops, {workflow.name} for {workflow.checkpoint}")
        ops: list[Json] = []
        while not ops or (len(ops) < most and ops[-1]["op"] == "step_completed"):
            op = await self._op(url, run, request, workflow)
            ops.append(op)
            if op["op"] == "step_completed":
                request["steps"][op["id"]] = {"status": "completed", "output": op["output"]}
                request["step_order"].append(op["id"])
        return ops

    async def _op(self, url: str, run: UUID, request: Json, workflow: Workflow) -> Json:
        memo, data = request["steps"], request["event"]["data"]
        for group in workflow.groups:
            for step in group:
                if step.id not in memo:
                    if not isinstance(step, Work):
                        return answer(step, data)
                    if self.stumbles(run, step):
                        return {"op": "run_failed", "error": {"name": "Stumble", "message": step.id}}
                    return await self.execute(url, run, data, workflow, step)
            fatal = [memo[step.id] for step in group if isinstance(step, Work) and step.fatal]
            for found in fatal:
                if found["status"] == "failed":
                    return {"op": "run_failed", "non_retriable": True, "error": found["error"]}
        return {"op": "run_completed", "output": json.loads(output_of(workflow.name, list(memo_of(request))))}

    def stumbles(self, run: UUID, step: Work) -> bool:
        """Whether the workflow raises before it gets to this step."""
        stumbles = self.witness.stumbled[run, step.id] < step.stumbles
        self.witness.stumbled[run, step.id] += stumbles
        return stumbles

    async def execute(self, url: str, run: UUID, data: Json, workflow: Workflow, step: Work) -> Json:
        """Execute the body of a step; the op that it comes to."""
        body = (run, step.id, self.witness.lives[run])  # before anything is awaited: the run may be retried meanwhile
        with self._inside(url, run, data, workflow) as gates:
            await self._check(gates)
            return await self._body(body, step)

    async def _body(self, body: Body, step: Work) -> Json:
        run = body[0]
        self.witness.bodies[body] += 1
        token = secrets.token_hex(8)
        self.witness.inside[token] = run
        try:
            return await self._work(body, step, token)
        finally:
            del self.witness.inside[token]

    async def _work(self, body: Body, step: Work, token: str) -> Json:
        place = body[:2]
        if step.slow and not self.open:
            waiting = asyncio.get_running_loop().create_future()
            self._slow.append(waiting)
            await waiting
        if step.fails or self.witness.failed[place] < step.failures:
            self.witness.failed[place] += 1
            self.witness.failures[body] += 1
            error = {"name": "Boom", "message": step.id}
            after = {} if step.retry_after_ms is None else {"retry_after": f"{step.retry_after_ms}ms"}
            return {"op": "step_failed", "error": error, "non_retriable": step.non_retriable, **after, **step.fields()}
        self.witness.answered[place].add(token)
        return {"op": "step_completed", "output": {"token": token}, **step.fields()}

    @contextmanager
    def _inside(self, url: str, run: UUID, data: Json, workflow: Workflow) -> Iterator[list[tuple[Gate, int]]]:
        gates = [((url, workflow.name, place, key), limit) for place, limit, key in workflow.gates(data)]
        for gate, _ in gates:
            self.witness.running[gate][run] += 1
        try:
            yield gates
        finally:
            for gate, _ in gates:
                self.witness.running[gate][run] -= 1

    async def _check(self, gates: list[tuple[Gate, int]]) -> None:
        """From inside a body: no more runs in here than the limit, but for those that were ended or taken away."""
        for gate, limit in gates:
            inside = [run for run, bodies in self.witness.running[gate].items() if bodies > 0]
            if len(inside) <= limit:
                continue
            async with self._database.connection() as connection:
                query = "select count(*) from rt.live where id = any ($1) and owner is not null"
                leased = await connection.fetchval(query, inside)
            if leased > limit:
                self.witness.faults.append(f"{leased} runs are in {gate}, which has a limit of {limit}")


def memo_of(request: Json) -> Iterator[tuple[str, str, Any]]:
    """The memory that a request shows, in order: id, status, payload."""
    for id in request["step_order"]:
        memo = request["steps"][id]
        yield id, memo["status"], memo["output"] if memo["status"] == "completed" else memo["error"]
