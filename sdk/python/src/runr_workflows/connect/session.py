"""What a worker process is to the engine, across its streams: its identity and the invocations it was given."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from runr.workflows.v1 import worker_service_pb2 as pb

from .live_invocation import Key, LiveInvocation, Outcome
from .resume import bring_message, key_of, resume_message
from .starting import Execution, Starter
from .stream import Stream

_KEEP_ENDED_S = 30.0
"""An end that was written this long before its stream broke has arrived."""

_REMEMBERED = 10_000
"""Runs of which is known, for each, up to which lease the engine has to count what was executed here."""

_LEAVING = "the worker is stopping"
_OUTCOMES: dict[int, Outcome] = {outcome.value: outcome for outcome in Outcome}

_log = logging.getLogger("runr_workflows")


class Session:
    """The invocations of one process. All methods are called on the loop of the connection."""

    def __init__(self, starter: Starter, *, max_concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_leaving = False
        self.is_idle = asyncio.Event()
        """Set while nothing is executed and nothing waits to be acknowledged."""
        self.is_idle.set()
        self._starter = starter
        self._max_concurrency = max_concurrency
        self._clock = clock
        self._stream: Stream | None = None
        self._is_first = True
        self._living: dict[str, LiveInvocation] = {}
        self._running: set[LiveInvocation] = set()
        self._parts: dict[tuple[int, Key], tuple[pb.Execute, list[bytes]]] = {}
        self._ended: deque[tuple[float, Key, bool]] = deque()
        self._resumed: dict[Key, int] = {}
        self._again: set[Key] = set()
        """Of what the Resume named as ended: what has to be begun anew."""
        self._dropped: dict[str, int] = {}
        """Run → the last epoch of which something was begun and dropped."""
        self._returned: dict[str, int] = {}
        """Run → the last epoch of which the engine was told that nothing has begun: nothing will."""
        self._left: set[Stream] = set()
        self._deducted: set[LiveInvocation] = set()
        self._owed = 0
        self._is_offered = False

    def offer(self) -> int:
        """Credits for a new stream, at least one: without what is executed over a stream that drains.

        Those are granted later, one by one. While leaving, Drain follows the Hello.
        """
        elsewhere = [live for live in self._running if live.outlet is not None]
        self._deducted = set(elsewhere[: self._max_concurrency - 1])
        self._owed, self._is_offered = 0, False
        return self._max_concurrency - len(self._deducted)

    @property
    def is_resuming(self) -> bool:
        """Whether the next stream begins with a Resume."""
        return not self._is_first

    def attach(self, stream: Stream) -> None:
        """A stream is open, the newest: it takes over what has none. The one before it is left when it can be."""
        if self._stream is not None:
            self._left.add(self._stream)
        self._stream, self._is_offered = stream, True
        if self.is_leaving:
            stream.outbox.put(pb.WorkerMessage(drain=pb.Drain(reason=_LEAVING)))
        if not self._is_first:
            self._resume(stream)
        self._is_first = False
        self._grant()
        self._look()

    def detach(self, stream: Stream) -> None:
        """A stream is gone. The next one takes over what it carried, or the newer one that there is."""
        self._parts = {place: part for place, part in self._parts.items() if place[0] != id(stream)}
        self._left.discard(stream)
        carried = [live for live in self._living.values() if live.outlet is stream.outbox]
        for live in carried:
            live.suspend()
        if self._stream is stream:
            self._stream = None
        elif self._stream is not None and carried:
            self._bring(self._stream, carried)

    def leave(self, grace_s: float) -> None:
        """Takes nothing more; what is executed is brought to an end."""
        self.is_leaving = True
        for live in list(self._living.values()):
            live.leave()
        if self._stream is not None:
            drain = pb.Drain(reason=_LEAVING)
            drain.grace.FromMilliseconds(round(grace_s * 1000))
            self._stream.outbox.put(pb.WorkerMessage(drain=drain))

    def close(self) -> None:
        """Drops whatever is left."""
        for live in list(self._living.values()):
            live.abandon()
        self._starter.close()

    def receive(self, stream: Stream, kind: str | None, message: pb.EngineMessage) -> None:
        """Does what the engine says. Messages of an unknown kind are ignored."""
        if kind == "ack":
            ack = message.ack
            live = self._find(ack.key)
            if live is not None and ack.outcome in _OUTCOMES:
                step = ack.step if ack.HasField("step") else None
                live.acked(ack.number, _OUTCOMES[ack.outcome], leave=ack.yield_reason != 0, step=step)
        elif kind == "execute":
            self._collect(stream, message.execute)
        elif kind == "delivery":
            live = self._find(message.delivery.key)
            if live is not None:
                live.delivered(message.delivery.step_id, message.delivery.step)
        elif kind == "cancel":
            live = self._find(message.cancel.key)
            if live is not None:
                _log.info("run %s: the invocation is cancelled: %s", live.key.run_id, message.cancel.reason)
                live.abandon()
        elif kind == "resume_ack":
            for item in message.resume_ack.items:
                self._taken_over(stream, item)
        elif kind == "recall":
            self._recall(stream, message.recall.keys)
        elif kind == "drain":
            stream.is_draining.set()

    def _collect(self, stream: Stream, part: pb.Execute) -> None:
        place = (id(stream), key_of(part.key))
        first, chunks = self._parts.pop(place, (part, []))
        chunks.append(part.request_chunk)
        if part.last:
            request = b"".join(chunks) if len(chunks) > 1 else chunks[0]
            opened = tuple(first.open_steps)
            self._execute(stream, Execution(place[1], request, first.traceparent, opened, first.tracestate))
        else:
            self._parts[place] = (first, chunks)

    def _execute(self, stream: Stream, execution: Execution) -> None:
        run, epoch, _ = execution.key
        before = self._living.get(run)
        outdated = epoch <= self._returned.get(run, -1) or (before is not None and before.key.epoch > epoch)
        if self.is_leaving or outdated:
            stream.outbox.send_end(execution.key)
            return
        if before is not None:
            before.abandon()
        live, begin = self._starter.prepare(execution, stream.outbox, over=self._over, ended=self._code_ended)
        self._living[execution.key.run_id] = live
        self._running.add(live)
        self.is_idle.clear()
        begin()

    def _over(self, live: LiveInvocation) -> None:
        if self._living.get(live.key.run_id) is live:
            del self._living[live.key.run_id]
        if live.is_abandoned:
            _remember(self._dropped, live.key)
        if live.has_ended:
            self._ended.append((self._clock(), live.key, live.goes_on_anew))
            while self._stream is not None and self._clock() - self._ended[0][0] > _KEEP_ENDED_S:
                self._ended.popleft()
        self._look()

    def _code_ended(self, live: LiveInvocation) -> None:
        self._running.discard(live)
        if live.is_abandoned and live.outlet is not None:
            live.outlet.send_end(live.key)
        if live in self._deducted:
            self._deducted.discard(live)
            self._owed += 1
            self._grant()
        self._look()

    def _grant(self) -> None:
        if self._owed and self._is_offered and self._stream is not None and not self.is_leaving:
            self._stream.outbox.put(pb.WorkerMessage(credits=pb.Credits(add=self._owed)))
            self._owed = 0

    def _look(self) -> None:
        if not self._living and not self._running:
            self.is_idle.set()
        if self._left:
            used = {live.outlet for live in self._living.values()}
            for stream in [each for each in self._left if each.outbox not in used]:
                self._left.discard(stream)
                stream.close()

    def _resume(self, stream: Stream) -> None:
        """Brings along what has no stream, and ends that may not have arrived. What is not named is lost."""
        homeless = [live for live in self._living.values() if live.outlet is None]
        # Naming an invocation asks for its run: not where a newer one is executed over a stream that drains.
        ended = [key for _, key, _ in self._ended if key.run_id not in self._living]
        self._again = {key for _, key, again in self._ended if again}
        message, self._resumed = resume_message(homeless, ended, stream.outbox)
        self._ended.clear()
        stream.outbox.put(message)

    def _bring(
        self, stream: Stream, living: Sequence[LiveInvocation], unknown: Sequence[pb.InvocationKey] = ()
    ) -> None:
        """Brings along what has lost its stream to this one."""
        if not stream.brings:
            for live in living:
                live.abandon()
            return
        message, sent = bring_message(living, unknown, stream.outbox)
        self._resumed |= sent
        stream.outbox.put(message)
        self._look()

    def _recall(self, stream: Stream, keys: Sequence[pb.InvocationKey]) -> None:
        """The engine asks for what it has given this worker, or was to.

        What is here is brought along, but not what is on its way, or was dropped. Only the newest stream is answered.
        """
        if stream is not self._stream:
            return
        found, unknown = [], []
        for key in keys:
            live = self._living.get(key.run_id)
            if live is not None and live.key.epoch >= key.epoch:
                if live.key.epoch == key.epoch and live.key not in self._resumed:
                    live.suspend()
                    found.append(live)
            elif self._dropped.get(key.run_id, -1) < key.epoch:
                unknown.append(key)
                _remember(self._returned, key_of(key))
        if found or unknown:
            self._bring(stream, found, unknown)

    def _taken_over(self, stream: Stream, item: pb.ResumeAck.Item) -> None:
        key = key_of(item.key)
        sent = self._resumed.pop(key, None)
        live = self._find(item.key)
        new_key = key_of(item.resumed_as) if item.HasField("resumed_as") else None
        if sent is None:
            return
        if live is None:
            if new_key is not None:
                stream.outbox.send_end(new_key, again=key in self._again)
        elif new_key is None:
            _log.info("run %s: this invocation is over; another process goes on with it", key.run_id)
            live.abandon()
        else:
            live.resume(new_key, stream.outbox, sent)

    def _find(self, key: pb.InvocationKey) -> LiveInvocation | None:
        live = self._living.get(key.run_id)
        return live if live is not None and live.key == (key.run_id, key.epoch, key.invocation) else None


def _remember(epochs: dict[str, int], key: Key) -> None:
    """Notes the lease of a run, and forgets what was noted longest ago."""
    epochs[key.run_id] = max(key.epoch, epochs.pop(key.run_id, -1))
    if len(epochs) > _REMEMBERED:
        del epochs[next(iter(epochs))]
