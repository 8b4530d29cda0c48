"""Streams on which requests of many callers come, many in a message (`PERMISSION_PER_ITEM`).

Each item is what a unary call is: it has its caller, its permission, its trace and its own answer, and no item's fault
is another's. Answers go out in messages of what has piled up. The stream says every second that it lives, so that a
caller can tell a process that is slow from one that is frozen.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from opentelemetry.trace import SpanKind

from services.core.domain.caller import Caller
from services.core.domain.errors import DomainError, InvalidInput, PermissionDenied, Unavailable
from services.core.rpc.authorize import permission_of, require
from services.core.rpc.call_context import Authenticator
from services.core.rpc.request_check import check_request
from services.core.rpc.status import MAX_DETAILS_BYTES, internal_error, row_of, to_status
from services.core.runtime.clock import Clock
from services.core.runtime.ids import ulid_unix_ms, uuid_of
from services.core.runtime.lifecycle import Component
from services.core.runtime.owned_ids import OwnedIds
from services.core.runtime.telemetry import Telemetry
from services.core.runtime.traceparent import extract, received

log = logging.getLogger(__name__)

BEAT_S = 1.0
"""So often a stream says that it lives."""

_MESSAGE_BYTES = 4 * 1024 * 1024
_LOOKUPS_AT_ONCE = 32
# An item is given up by its sender before its id is so old; a clock may be off a little.
_OLDEST_ID_MS = 60_000
_NEWEST_ID_MS = 5_000


class Submission:
    """One item on its way: what is asked, by whom, and where the answer goes."""

    __slots__ = (
        *("_answered", "_answers", "_begun_ns", "_number", "_parent", "_rpc"),
        *("again", "caller", "id", "request", "trace"),
    )

    def __init__(self, item: Any, caller: Caller, rpc: str, answers: _Answers) -> None:
        """Raises InvalidInput for what no request may hold, and for an id that is none; Unavailable for an id that
        was not made just now.
        """
        check_request(item.request)
        self.id = answers.owned.of(_id(item.id, answers.clock), caller.tenant) if item.id else None
        self.request: Any = item.request
        self.again: bool = item.again
        self.caller = caller
        self._number: int = item.number
        self._rpc = rpc
        self._answers = answers
        self._answered = False
        telemetry = answers.telemetry
        state, _, parent = item.credentials.traceparent.rpartition(" ")
        self._parent = received(parent, state) if parent else None
        self._begun_ns = telemetry.now_ns()
        self.trace = (telemetry.reserve(self._parent) or None) if telemetry.enabled else self._parent

    def answer(self, response: Any) -> None:
        """It was carried out. Only the first answer counts."""
        if not self._answered:
            self._answered = True
            self._answers.add(self._answers.form.Item(number=self._number, response=response))
            self._record(None)

    def fail(self, error: Exception) -> None:
        """It was not. What is no error of the domain is logged, and its caller is told no more than where to look."""
        if not self._answered:
            self._answered = True
            shown = _shown(error, self.trace, self._rpc)
            self._answers.fail(self._number, shown)
            self._record(shown)

    def _record(self, error: DomainError | None) -> None:
        telemetry = self._answers.telemetry
        if not telemetry.follows(self.trace):
            return
        name = self._rpc.removeprefix("/")
        telemetry.record(
            name,
            start_ns=self._begun_ns,
            end_ns=telemetry.now_ns(),
            parent=self._parent,
            identity=self.trace,
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.method": name},
            error=str(error) if error is not None and row_of(error).http >= 500 else None,
        )


Take = Callable[[Submission], Awaitable[None]]
"""Takes a submission, which is answered now or later. What it raises is its answer too. It waits for nothing but its
own thinking: others of the same caller come after it.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of stream: the unary method that an item stands for, the message of answers, and who takes items."""

    rpc: str
    form: Any
    take: Take


class Submissions(Component):
    """The streams of one server. Its `drain` ends them: what has been read is answered, the rest is for another."""

    name = "submissions"

    def __init__(self, authenticator: Authenticator, telemetry: Telemetry, clock: Clock, owned: OwnedIds) -> None:
        """`clock` is the database's, estimated; `owned` makes ids that are offered the caller's tenant's."""
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._clock = clock
        self._owned = owned
        self._readers: set[asyncio.Task[None]] = set()
        self._draining = False

    async def serve(self, kind: Kind, messages: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The answers to a stream of `messages`; ends when all that was read is answered."""
        answers = _Answers(kind.form, self._telemetry, self._clock, self._owned)
        reader = asyncio.create_task(self._read(kind, messages, answers), name="submissions")
        self._readers.add(reader)

        def ended(reader: asyncio.Task[None]) -> None:
            if not reader.cancelled() and reader.exception() is not None:
                log.debug("a stream broke off", exc_info=reader.exception())
            answers.wake()

        reader.add_done_callback(ended)
        if self._draining:
            reader.cancel()
        try:
            yield answers.message()
            while not (reader.done() and answers.done):
                await answers.wait(BEAT_S)
                yield answers.message()
        finally:
            self._readers.discard(reader)
            reader.cancel()

    async def drain(self) -> None:
        """Read no more."""
        self._draining = True
        for reader in self._readers:
            reader.cancel()

    async def _read(self, kind: Kind, messages: AsyncIterator[Any], answers: _Answers) -> None:
        async for message in messages:
            groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
            for item in message.items:
                groups[item.credentials.token, item.credentials.tenant].append(item)
            answers.expect(len(message.items))
            for (token, tenant), items in groups.items():
                await answers.room()
                # Apart: a caller who has to be looked up keeps no other waiting.
                answers.keep(asyncio.create_task(self._take(kind, token, tenant, items, answers), name="submitted"))

    async def _take(self, kind: Kind, token: str, tenant: str, items: Sequence[Any], answers: _Answers) -> None:
        try:
            caller = await self._authenticator.authenticate(token, tenant or None)
            try:
                require(caller, permission_of(kind.rpc))
            except PermissionDenied:
                await self._authenticator.denied(caller, kind.rpc)
                raise
        except Exception as error:
            shown = _shown(error, None, kind.rpc)
            for item in items:
                answers.fail(item.number, shown)
            return
        for item in items:
            try:
                submission = Submission(item, caller, kind.rpc, answers)
            except (InvalidInput, Unavailable) as refusal:
                answers.fail(item.number, refusal)
                continue
            try:
                await kind.take(submission)
            except Exception as error:
                submission.fail(error)


class _Answers:
    """What a stream still owes, and what is ready to be sent."""

    def __init__(self, form: Any, telemetry: Telemetry, clock: Clock, owned: OwnedIds) -> None:
        self.form = form
        self.telemetry = telemetry
        self.clock = clock
        self.owned = owned
        self._owed = 0
        self._ready: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    @property
    def done(self) -> bool:
        """Whether all that was read is answered, and sent."""
        return not self._owed and not self._ready

    def expect(self, count: int) -> None:
        self._owed += count

    async def room(self) -> None:
        """Wait while many callers of this stream are being looked up: strangers by the thousand hold up only it."""
        while len(self._tasks) >= _LOOKUPS_AT_ONCE:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def add(self, item: Any) -> None:
        self._owed -= 1
        self._ready.append(item)
        self._wake.set()

    def fail(self, number: int, error: DomainError) -> None:
        self.add(self.form.Item(number=number, status=to_status(error, max_bytes=MAX_DETAILS_BYTES)))

    def wake(self) -> None:
        self._wake.set()

    async def wait(self, timeout_s: float) -> None:
        """Until there is something to send, or the time has passed."""
        if not self._ready:
            self._wake.clear()
            timer = asyncio.get_running_loop().call_later(timeout_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    def message(self) -> Any:
        """What is ready, as far as it fits into one message."""
        return self.form(items=self._fitting(), now_ms=self.clock.unix_ms())

    def _fitting(self) -> Iterable[Any]:
        sizes = 0
        for count, item in enumerate(self._ready):
            sizes += item.ByteSize()
            if sizes > _MESSAGE_BYTES and count:
                items, self._ready = self._ready[:count], self._ready[count:]
                return items
        items, self._ready = self._ready, []
        return items


def _id(data: bytes, clock: Clock) -> UUID:
    if len(data) != 16:
        raise InvalidInput.of("id", f"must have 16 bytes, it has {len(data)}")
    id = uuid_of(int.from_bytes(data))
    if not -_OLDEST_ID_MS <= ulid_unix_ms(id) - clock.unix_ms() <= _NEWEST_ID_MS:
        # Its sender goes by the time that the stream tells, and has not yet heard that the database's clock was set.
        raise Unavailable("the clock of the database was set; try again")
    return id


def _shown(error: Exception, trace: str | None, rpc: str) -> DomainError:
    if isinstance(error, DomainError) and type(error) is not DomainError:
        return error
    identity = extract(trace)
    trace_id = f"{identity.trace_id:032x}" if identity else secrets.token_hex(16)
    log.error("call failed", exc_info=error, extra={"method": rpc, "trace_id": trace_id})
    return internal_error(trace_id)
