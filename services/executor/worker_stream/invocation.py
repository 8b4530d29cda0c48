"""One invocation that a worker is executing, as the executor sees it: ops that came, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.op import FunctionFault
from services.executor.worker_stream.entries import key_field

_OP_BYTES = 200

Key = tuple[str, int, int]
"""Run (ULID), epoch, number within the lease (rulings S1)."""


def key_of(key: pb.InvocationKey) -> Key:
    """The key of a message."""
    return (key.run_id, key.epoch, key.invocation)


class ReportedOp(NamedTuple):
    """An op as it came: its number within the invocation, and its JSON text."""

    number: int
    text: bytes


def weight(text: bytes) -> int:
    """About the memory that an op takes here."""
    return len(text) + _OP_BYTES


class Report(msgspec.Struct, frozen=True):
    """What came since the last look. `over`: nothing of the invocation is being executed any more. `mail`: somebody
    says that something was delivered to the run. `again`: the code has to be begun anew to go on.
    """

    ops: list[ReportedOp]
    over: bool
    mail: bool = False
    again: bool = False


_REPORT_OPS = 256
_REPORT_BYTES = 16 * 1024


class Forgotten(Exception):
    """The worker never began it: its Execute was lost with a stream."""


class LiveInvocation:
    """The inbox of one invocation. Filled by the stream's reader, emptied by the one task that drives the run."""

    def __init__(
        self,
        key: Key,
        now: float,
        freed: Callable[[int], None],
        loop: asyncio.AbstractEventLoop,
        *,
        was: Key | None = None,
    ) -> None:
        """`now` is monotonic; `freed` is told of the bytes of ops taken; `was`: its key at another executor."""
        self._loop = loop
        self.key = key
        self.was = was
        self.message_key = pb.InvocationKey(run_id=key[0], epoch=key[1], invocation=key[2])
        self.ack_key = key_field(self.message_key)
        self.over = False
        self._again = False
        self.committed = 0
        """The highest op number that was answered."""
        self.results: dict[int, bytes] = {}
        """Results that acknowledgements carried, by op number: an op that comes again is answered alike."""
        self.failed: frozenset[int] = frozenset()
        """Numbers of ops that another executor has stored as failed attempts."""
        self.deliveries: dict[str, bytes] = {}
        """Results that were delivered, by step id: one that was lost with a stream is sent again."""
        self.heard = now
        """When the worker was last known to have begun something: the request timeout counts from here (S6)."""
        self._freed = freed
        self._ops: list[ReportedOp] = []
        self._received = 0
        self._mail = False
        self._fault: FunctionFault | Forgotten | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether the worker is executing and nothing of it waits here."""
        return not self._ops and not self.over and self._fault is None

    @property
    def answered(self) -> bool:
        """Whether the worker has ended it, and has an answer to each of its ops."""
        return self.over and self._received == self.committed

    def arrived(self, op: pb.Op, now: float) -> bool:
        """An op came. False for one that is here already: it is answered when it is committed."""
        if self.committed < op.number <= self._received or (self.over and op.number > self._received):
            return False
        # One that was another executor's goes on anywhere.
        follows = op.number <= self._received + 1 or (self.was is not None and not self._received)
        if op.number < 1 or not follows:
            text = f"op {op.number} came after op {self._received}: ops are numbered from 1, in order"
            self.fail(FunctionFault("ProtocolError", text))
            return False
        self._received = max(self._received, op.number)
        self._ops.append(ReportedOp(op.number, op.op))
        self.heard = now
        self.over = self.over or op.last
        self._look()
        return True

    def end(self, *, again: bool = False) -> None:
        """The worker says that nothing is left to do, or, `again`, nothing without a new invocation."""
        self._again = again and not self.over
        self.over = True
        self._look()

    def mailed(self) -> None:
        """Somebody says that something was delivered to the run."""
        self._mail = True
        self._look()

    def forgotten(self) -> bool:
        """The worker does not know it. Whether it cannot have begun, and is to be executed anew: one that was brought
        along from another executor had begun there.
        """
        if self._received or self.was is not None:
            return False
        self._end_with(Forgotten())
        return True

    def drop(self) -> None:
        """Nobody takes what is here any more."""
        ops, self._ops = self._ops, []
        self._freed(sum(weight(op.text) for op in ops))

    def fail(self, fault: FunctionFault) -> None:
        """The invocation ends here, whatever the worker still sends."""
        self._end_with(fault)

    @property
    def has_news(self) -> bool:
        """Whether there is something to report."""
        return bool(self._ops) or self.over or self._mail or self._fault is not None

    def news(self) -> asyncio.Future[None]:
        """Done when there may be something to report. For one at a time."""
        self._waiter = self._loop.create_future()
        return self._waiter

    def report(self) -> Report:
        """The next ops, or the end. Raises FunctionFault or Forgotten once nothing more can come."""
        if not self._ops and self._fault is not None:
            raise self._fault
        ops, self._ops = self._ops, []
        if len(ops) > 1:
            ops, self._ops = _in_one_go(ops)
        mail, self._mail = self._mail, False
        self._freed(sum([weight(op.text) for op in ops]))
        return Report(ops, self.over and not self._ops, mail, self._again)

    def _end_with(self, fault: FunctionFault | Forgotten) -> None:
        if self._fault is None:
            self._fault = fault
            self._look()

    def _look(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _in_one_go(ops: list[ReportedOp]) -> tuple[list[ReportedOp], list[ReportedOp]]:
    """As many ops as may be judged at once, and the rest: a worker that says much must not hold up the others."""
    size = count = 0
    while count < min(len(ops), _REPORT_OPS) and size < _REPORT_BYTES:
        size += len(ops[count].text)
        count += 1
    return ops[:count], ops[count:]
