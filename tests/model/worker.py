"""Workers of the model: the real SDK executes the scripts, over streams that break, in processes that die."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any
from uuid import UUID, uuid4

from runr.workflows.v1 import worker_service_pb2 as pb
from runr_workflows import AsyncStep, Context, NonRetriableError, RetryAfterError, StepError
from runr_workflows.connect.connection import Connection
from runr_workflows.connect.handshake import Introduction
from runr_workflows.connect.session import Session
from runr_workflows.connect.starting import Execution, Starter
from runr_workflows.connect.stream import Stream, _expect
from runr_workflows.connect.target import Target
from runr_workflows.definition import Workflow as SdkWorkflow
from runr_workflows.protocol import introspect_answer

from services.core.runtime.ids import ulid_uuid
from tests.model.function import Functions
from tests.model.line import Line
from tests.model.script import Await, Invoke, Json, Nap, Send, Step, Work, Workflow, answer, output_of

_DRAIN_S = 0.3

Dial = Callable[[], Line]
"""A stream to some executor. Raises StreamLost where none takes it."""


class Boom(Exception):
    """What bodies fail with."""


class Stumble(Exception):
    """What workflows fail with outside of steps."""


class ModelWorker:
    """One worker process after another, of the project `tenant`/`project`, whose functions have this URL."""

    def __init__(
        self,
        introduction: Callable[[str, bytes], Introduction],
        key: str,
        url: str,
        workflows: Sequence[Workflow],
        functions: Functions,
        dial: Dial,
        rng: random.Random,
        *,
        credits: int,
    ) -> None:
        """`introduction` is given a session and the definitions."""
        self._key = key
        self._url = url
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._introduction = introduction
        self._functions = functions
        self._dial = dial
        self._rng = rng
        self._credits = credits
        self._connection: _ModelConnection | None = None
        self._entering: asyncio.Task[Connection] | None = None
        self._lines: list[Line] = []
        self._changing = asyncio.Lock()

    def start(self) -> None:
        """A new process, which connects as soon as an executor takes it."""
        scripts = [_Script(self._url, workflow, self._functions) for workflow in self._workflows.values()]
        known = {each.workflow.name: SdkWorkflow(each.workflow.name, each.run, True, {}) for each in scripts}
        definitions = introspect_answer([each.workflow.definition() for each in scripts])
        connection = _ModelConnection(
            Target("model", 1, None),
            self._introduction(str(uuid4()), definitions),
            [self._key],
            lambda: _SeenSession(
                Starter(known, capture_input=True, threads=1),
                self._shown,
                max_concurrency=self._credits,
            ),
            drain_s=_DRAIN_S,
            jitter=self._rng,
        )
        connection.dial = self._open
        self._connection = connection
        self._entering = asyncio.create_task(connection.__aenter__())

    async def connected(self) -> None:
        """Wait until it is."""
        assert self._entering is not None
        await self._entering

    async def stop(self) -> None:
        """End at once: nothing more is said."""
        connection, self._connection = self._connection, None
        if connection is not None and self._entering is not None:
            await asyncio.sleep(0)  # it has begun
            self._entering.cancel()
            await asyncio.wait({self._entering})
            connection.cut_off()
            await connection.wait()
        self.tear()

    async def die(self) -> None:
        """End as by kill -9, and be started again."""
        async with self._changing:
            await self.stop()
            self.start()

    async def leave(self) -> Collection[UUID]:
        """Stop in order, and be started again. The runs that it executed when it began to stop."""
        left: Collection[UUID] = ()
        async with self._changing:
            if self._connection is not None and self._connection.is_connected:
                self._connection.stop()
                await self._connection.wait()
                left = self._connection.session.left
            await self.stop()
            self.start()
        return left

    def tear(self) -> None:
        """Lose all streams; the process lives on."""
        for line in self._lines:
            line.tear()
        self._lines.clear()

    def _open(self) -> Line:
        line = self._dial()
        self._lines = [each for each in self._lines if each.is_open] + [line]
        return line

    def _shown(self, execution: Execution) -> None:
        request = json.loads(execution.request)
        self._functions.witness.show(ulid_uuid(request["run"]["id"]), request, self._workflows[request["workflow"]])


class _ModelConnection(Connection):
    """Connects over lines of the model."""

    dial: Dial

    @property
    def session(self) -> _SeenSession:
        """What the worker is to the engine; once it has begun to connect."""
        assert isinstance(self._session, _SeenSession)
        return self._session

    async def _open_with(self, key: str) -> Stream:
        line = self.dial()
        offered, resuming = self._session.offer(), self._session.is_resuming
        challenge, rest = await _expect(line, "challenge", [])
        hello = self._introduction.hello(challenge.challenge.nonce, key, offered, resuming=resuming)
        await line.write(pb.ConnectRequest(messages=[pb.WorkerMessage(hello=hello)]))
        answered, rest = await _expect(line, "hello_ack", rest)
        return Stream(line, line, answered.hello_ack, rest)


class _SeenSession(Session):
    """Tells what each invocation is shown, and what was executed when it began to leave."""

    def __init__(self, starter: Starter, seen: Callable[[Execution], None], *, max_concurrency: int) -> None:
        super().__init__(starter, max_concurrency=max_concurrency)
        self._seen = seen
        self.left: Collection[UUID] = ()

    def leave(self, grace_s: float) -> None:
        self.left = [ulid_uuid(run) for run in self._living]
        super().leave(grace_s)

    def _execute(self, stream: Stream, execution: Execution) -> None:
        self._seen(execution)
        super()._execute(stream, execution)


class _Script:
    """A workflow of the model as code for the SDK."""

    def __init__(self, url: str, workflow: Workflow, functions: Functions) -> None:
        self.workflow = workflow
        self._url = url
        self._functions = functions

    async def run(self, ctx: Context, step: AsyncStep) -> Any:
        """One group of steps after another; what is not caught comes after all of its group."""
        run, data = ulid_uuid(ctx.run_id), dict(ctx.event["data"])
        saw: list[tuple[str, str, Any]] = []
        for group in self.workflow.groups:
            self._stumble(run, group)
            # Called by the workflow function itself: steps that are called in tasks of their own go one by one.
            calls = [self._call(run, data, step, each) for each in group]
            results = await asyncio.gather(*calls, return_exceptions=True)
            for each, result in zip(group, results, strict=True):
                if isinstance(result, StepError):
                    saw.append((each.id, "failed", {"name": result.name, "message": result.message}))
                elif isinstance(result, BaseException):
                    raise result
                else:
                    saw.append((each.id, "completed", result))
                    self._functions.witness.show_step(run, each.id, {"status": "completed", "output": result})
            for each, result in zip(group, results, strict=True):
                if isinstance(each, Work) and each.fatal and isinstance(result, StepError):
                    raise result
        return json.loads(output_of(self.workflow.name, saw))

    def _stumble(self, run: UUID, group: tuple[Step, ...]) -> None:
        for each in group:
            is_new = (run, each.id) not in self._functions.witness.shown
            if is_new and isinstance(each, Work) and self._functions.stumbles(run, each):
                raise Stumble(each.id)

    def _call(self, run: UUID, data: Json, step: AsyncStep, each: Step) -> Awaitable[Any]:
        match each:
            case Work():
                runner = step if each.own_attempts is None else step.options(retries=each.own_attempts - 1)
                return runner.run(each.id, self._body, run, data, each)
            case Nap(id=id, ms=ms):
                return step.sleep(id, f"{ms}ms")
            case Await(id=id):
                fields = answer(each, data)
                return step.wait_for_event(
                    id,
                    each.event,
                    match=fields.get("match"),
                    if_=fields.get("if"),
                    timeout=fields["timeout"],
                    lookback=fields.get("lookback"),
                )
            case Invoke(id=id, workflow=workflow, timeout_ms=timeout_ms):
                return step.invoke(id, workflow, data=data, timeout=f"{timeout_ms}ms")
            case Send(id=id, events=events):
                return step.send_event(id, [{"name": name, "data": data} for name in events])

    async def _body(self, run: UUID, data: Json, each: Work) -> Any:
        op = await self._functions.execute(self._url, run, data, self.workflow, each)
        if op["op"] == "step_completed":
            return op["output"]
        if each.non_retriable:
            raise NonRetriableError(each.id)
        if each.retry_after_ms is not None:
            raise RetryAfterError(each.id, f"{each.retry_after_ms}ms")
        raise Boom(each.id)
