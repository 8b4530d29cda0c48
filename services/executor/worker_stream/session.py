"""One worker process: the stream it has now, the invocations it was given, the credits it has left (rulings S4–S6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.op import FunctionFault
from services.core.runtime.clock import Clock
from services.core.runtime.traceparent import headers
from services.executor.worker_stream.entries import entry
from services.executor.worker_stream.invocation import Key, LiveInvocation, key_of, weight
from services.executor.worker_stream.outbox import Outbox

MAX_CREDITS = 10_000
"""Invocations that one worker may be given at once, whatever it says."""
MAX_INBOX_BYTES = 8 * 1024 * 1024
"""Ops that may wait to be committed; a worker that reports faster is not read."""
Brought = pb.Resume.Item
"""An invocation that a worker brings along, with the ops that were not acknowledged."""

_CHUNK_BYTES = 1024 * 1024


class WorkerSession:
    """What a worker is to this executor, across the streams it opens one after another."""

    def __init__(
        self,
        session: str,
        *,
        tenant: int,
        project: int,
        node: str,
        clock: Clock,
        credits_changed: Callable[[WorkerSession], None],
    ) -> None:
        """`credits_changed` is told whenever there may be more `credits`, or none any more."""
        self.session = session
        self.tenant = tenant
        self.project = project
        self.node = node
        self.workflows: frozenset[str] = frozenset()
        self.workflow_ids: frozenset[int] = frozenset()
        self.draining = False
        self.detached_at: float | None = None
        self._slots = 0
        self._resuming = False
        self._is_full = False
        self._brings = False
        self._recalled: set[tuple[str, int]] = set()
        """What it was asked for on its stream: run and epoch."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._credits_changed = credits_changed
        self._outbox: Outbox | None = None
        self._running: dict[Key, LiveInvocation] = {}
        self._foreign: dict[Key, pb.InvocationKey] = {}
        """Invocations that the worker brought along from another executor, and that it was not answered about yet."""
        self._inbox_bytes = 0
        self._taken_some = asyncio.Event()

    @property
    def credits(self) -> int:
        """Invocations that it would take now."""
        if self._outbox is None or self.draining or self._resuming or self._is_full:
            return 0  # one that does not read what it was given is given nothing more
        return self._slots - len(self._running) - len(self._foreign)

    @property
    def is_resuming(self) -> bool:
        """Whether its Resume has not come yet."""
        return self._resuming

    @property
    def is_connected(self) -> bool:
        """Whether it has a stream now."""
        return self._outbox is not None

    @property
    def running(self) -> Iterable[LiveInvocation]:
        """The invocations that are not over."""
        return self._running.values()

    def attach(self, outbox: Outbox, credits: int, *, resuming: bool = False, brings: bool = False) -> None:
        """The worker has a stream, its newest one. `brings`: it answers Recall. `resuming`: nothing before its Resume.

        What it was given before that would not be named in it, and would look as if it had never arrived. One that does
        not resume has not seen a stream of this session: what it was given over one that it gave up has not arrived.
        """
        self._resuming = resuming
        self._brings = brings
        self._recalled.clear()
        newer = pb.Goodbye(reason="SUPERSEDED", message="a newer stream of this session")
        self.leave(pb.EngineMessage(goodbye=newer))
        self._outbox = outbox
        self._is_full = False
        self._slots = credits
        self.draining = False
        self.detached_at = None
        if not resuming:
            self._give_up_all_but(())
        self._credits_changed(self)

    def detach(self, outbox: Outbox) -> None:
        """That stream is gone. Without effect if a newer one has taken its place."""
        if self._outbox is outbox:
            self._outbox = None
            self.detached_at = self._clock.monotonic()
            self._credits_changed(self)

    def drain(self) -> None:
        """It takes nothing more."""
        self.draining = True
        self._credits_changed(self)

    def leave(self, goodbye: pb.EngineMessage) -> None:
        """Close the stream that it has, with a last word."""
        if self._outbox is not None:
            self._outbox.put(goodbye)
            self._outbox.close()

    def grant(self, credits: int) -> None:
        """It takes this many more invocations at once."""
        self._slots = min(self._slots + credits, MAX_CREDITS)
        self._credits_changed(self)

    def send(self, message: pb.EngineMessage) -> None:
        """Say something to the worker; lost while it has no stream, and found out about when it resumes."""
        self.send_entry(entry(message))

    def send_entry(self, message: bytes) -> None:
        """The same of a message as `entries` writes it."""
        if self._outbox is not None:
            self._outbox.put_entry(message)
            if self._outbox.is_full is not self._is_full:
                self._note_fullness()

    def execute(
        self, key: Key, *, workflow: str, request: str, traceparent: str | None, open_steps: Iterable[str]
    ) -> LiveInvocation:
        """Give it an invocation, spending a credit. `request` is the text of an execute request of protocol v1."""
        invocation = LiveInvocation(key, self._clock.monotonic(), self._taken, self._loop)
        self._running[invocation.key] = invocation
        if self.credits <= 0:
            self._credits_changed(self)
        text = request.encode()
        for at in range(0, len(text), _CHUNK_BYTES):
            chunk = text[at : at + _CHUNK_BYTES]
            message = pb.ConnectResponse()  # filled in where it is: a message that is made part of another is copied
            part = message.messages.add().execute
            part.key.CopyFrom(invocation.message_key)
            part.request_chunk = chunk
            part.last = at + _CHUNK_BYTES >= len(text)
            if at == 0:
                part.workflow = workflow
                part.request_bytes = len(text)
                for name, value in headers(traceparent).items():
                    setattr(part, name, value)
                part.open_steps.extend(open_steps)
            self.send_entry(message.SerializeToString())
        return invocation

    def find(self, key: pb.InvocationKey) -> LiveInvocation | None:
        """The invocation that a message speaks of; None for one that is over."""
        return self._running.get((key.run_id, key.epoch, key.invocation))

    def close(self, invocation: LiveInvocation, reason: str = "") -> None:
        """The invocation is over. A worker that expects to hear of it again is told why; its credit is free again."""
        if self._running.pop(invocation.key, None) is None:
            return
        invocation.drop()
        if not invocation.answered:
            self.send(pb.EngineMessage(cancel=pb.Cancel(key=invocation.message_key, reason=reason)))
        self._credits_changed(self)

    def abandoned(self, op: pb.Op) -> None:
        """An op of an invocation that is over: it is not committed and never will be (S1)."""
        ack = pb.Ack(key=op.key, number=op.number, outcome=pb.ACK_OUTCOME_ABANDONED)
        self.send(pb.EngineMessage(ack=ack))

    def resume(self, resume: pb.Resume) -> list[pb.Resume.Item]:
        """The worker brings along what it was executing when its stream broke, with the ops that were not answered.

        Those of them that still run here go on. What it does not bring along never reached it and is executed anew; if
        it had begun, its worker has lost it, and that is a failed attempt. Returns what does not run here: `adopt` or
        `decline` answers it.
        """
        self._resuming = False
        self._foreign = {}
        going_on, foreign = self._sort(resume.items)
        if going_on or not foreign:
            self._go_on(going_on)
        self._give_up_all_but(going_on)
        self._credits_changed(self)
        return foreign

    def _give_up_all_but(self, going_on: Container[Key]) -> None:
        for key, invocation in list(self._running.items()):
            if key not in going_on and not invocation.over and not invocation.forgotten():
                invocation.fail(
                    FunctionFault("WorkerDisconnected", f"the worker {self.node} knows nothing of this run")
                )

    def bring(self, items: Iterable[Brought]) -> list[Brought]:
        """The worker brings these along beside what it has named in its Resume: see there."""
        going_on, foreign = self._sort(items)
        if going_on:
            self._go_on(going_on)
        self._credits_changed(self)
        return foreign

    def _sort(self, items: Iterable[Brought]) -> tuple[dict[Key, Brought], list[Brought]]:
        """What runs here, by its key here, and what does not: that is noted as not answered yet."""
        brought = {key_of(item.key): item for item in items}
        before = {each.was: each.key for each in self._running.values() if each.was is not None}
        going_on = {here: item for key, item in brought.items() if (here := before.get(key, key)) in self._running}
        foreign = {key: item for key, item in brought.items() if before.get(key, key) not in going_on}
        self._foreign |= {key: item.key for key, item in foreign.items()}
        return going_on, list(foreign.values())

    def _go_on(self, going_on: Mapping[Key, Brought]) -> None:
        answer = pb.ResumeAck()
        for here, item in going_on.items():
            answer.items.add(key=item.key, resumed_as=self._running[here].message_key)
        self.send(pb.EngineMessage(resume_ack=answer))
        for here, item in going_on.items():
            self._take_up(self._running[here], item)

    def recall(self, kept: Iterable[tuple[str, int]]) -> None:
        """Ask for runs that are kept for it, each once on a stream: the run, and the epoch under which it was given."""
        if self._outbox is None or self._resuming or not self._brings:
            return
        known = {key[0] for key in (*self._running, *self._foreign)}
        asked = [each for each in kept if each not in self._recalled and each[0] not in known]
        if asked:
            self._recalled.update(asked)
            keys = [pb.InvocationKey(run_id=run, epoch=epoch) for run, epoch in asked]
            self.send(pb.EngineMessage(recall=pb.Recall(keys=keys)))

    def asked_for(self, keys: Iterable[pb.InvocationKey]) -> list[pb.InvocationKey]:
        """Those of these that it was asked for on this stream. It has answered: what is kept yet is asked for anew."""
        asked = [key for key in keys if (key.run_id, key.epoch) in self._recalled]
        self._recalled.difference_update((key.run_id, key.epoch) for key in asked)
        return asked

    def deliver(self, invocation: LiveInvocation, step_id: str, result: bytes) -> None:
        """A step that was open has got its result (JSON text)."""
        invocation.deliveries[step_id] = result
        delivery = pb.Delivery(key=invocation.message_key, step_id=step_id, step=result)
        self.send(pb.EngineMessage(delivery=delivery))

    def _take_up(self, invocation: LiveInvocation, item: pb.Resume.Item) -> None:
        now = self._clock.monotonic()
        for op in item.unacked:
            if invocation.arrived(op, now):
                self._inbox_bytes += weight(op.op)
        for step_id, result in list(invocation.deliveries.items()):
            self.deliver(invocation, step_id, result)

    def adopt(self, key: Key, item: pb.Resume.Item) -> LiveInvocation:
        """An invocation that was another executor's goes on here, under this key."""
        was = key_of(item.key)
        invocation = LiveInvocation(key, self._clock.monotonic(), self._taken, self._loop, was=was)
        self._running[key] = invocation
        self._credits_changed(self)
        if self._foreign.pop(was, None) is not None:  # else it has another stream by now, on which it asks again
            answer = pb.ResumeAck(items=[pb.ResumeAck.Item(key=item.key, resumed_as=invocation.message_key)])
            self.send(pb.EngineMessage(resume_ack=answer))
        self._take_up(invocation, item)
        return invocation

    def decline(self, keys: Iterable[pb.InvocationKey]) -> None:
        """Those of these invocations that were not adopted are over."""
        declined = [key for key in keys if self._foreign.pop(key_of(key), None) is not None]
        if declined:
            self._credits_changed(self)
            answer = pb.ResumeAck(items=[pb.ResumeAck.Item(key=key) for key in declined])
            self.send(pb.EngineMessage(resume_ack=answer))

    def postpone(self, keys: Iterable[pb.InvocationKey]) -> None:
        """What was not answered of these cannot be judged now. The worker keeps it, and brings it along once more."""
        if any(key_of(key) in self._foreign for key in keys):
            later = pb.Goodbye(reason="UNAVAILABLE", message="what it brings along cannot be taken over now: try again")
            self.leave(pb.EngineMessage(goodbye=later))

    def part(self, goodbye: pb.EngineMessage) -> None:
        """This process holds none of its runs any more. The worker keeps what it executes, and brings it along."""
        for invocation in self._running.values():
            invocation.drop()
        self._running.clear()
        self.leave(goodbye)

    def lost(self) -> None:
        """The worker is gone for good: each of its invocations is a failed attempt."""
        for invocation in list(self._running.values()):
            invocation.fail(
                FunctionFault("WorkerDisconnected", f"the worker {self.node} went away while it executed this run")
            )

    def expire(self, timeout_s: float) -> None:
        """Fail what the worker has been silent about for as long as a request may take (S6)."""
        now = self._clock.monotonic()
        for invocation in list(self._running.values()):
            if invocation.idle and now - invocation.heard > timeout_s:
                invocation.fail(
                    FunctionFault("FunctionTimeout", f"no op within {timeout_s:g} s: a step took longer, or hangs")
                )

    def was_read(self) -> None:
        """Its stream has taken something that waited: there may be room for more."""
        self._note_fullness()

    def _note_fullness(self) -> None:
        is_full = self._outbox is not None and self._outbox.is_full
        if is_full is not self._is_full:
            self._is_full = is_full
            self._credits_changed(self)

    async def room(self) -> None:
        """Wait while its stream does not take what it is told."""
        if self._outbox is not None:
            await self._outbox.room()

    async def took_in(self, size: int) -> None:
        """Ops of this size were read; waits while the inboxes hold more than `MAX_INBOX_BYTES` (S5)."""
        self._inbox_bytes += size
        while self._inbox_bytes > MAX_INBOX_BYTES:
            self._taken_some.clear()
            await self._taken_some.wait()

    def _taken(self, size: int) -> None:
        self._inbox_bytes -= size
        self._taken_some.set()
