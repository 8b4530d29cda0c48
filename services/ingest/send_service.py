"""Sending events over gRPC, one request a call or many on a stream: requests to the engine's words and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal
from uuid import UUID

from runr.workflows.v1 import event_service_pb2

from services.core.domain.errors import FieldError, InvalidInput, Malformed, TooLarge
from services.core.domain.event import EventLimits, NewEvent, validate_event
from services.core.domain.json_text import payload_text
from services.core.domain.plain_events import plain_event
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.rpc.submissions import Kind, Submission, Submissions
from services.core.runtime.ids import ulid_text
from services.core.runtime.off_loop import OffLoop

_RPC = "/runr.workflows.v1.EventService/SendEvents"
_MAX_RUN_IDS = 1_000


class SendService:
    """The part of EventService that accepts events."""

    def __init__(self, acceptor: EventAcceptor, limits: EventLimits, submissions: Submissions) -> None:
        self._acceptor = acceptor
        self._limits = limits
        self._off_loop = OffLoop("events")
        self._submissions = submissions
        self._kind = Kind(_RPC, event_service_pb2.SubmitEventsResponse, self._take)

    async def send(
        self, request: event_service_pb2.SendEventsRequest, tenant: int, trace: str | None, *, id: UUID | None = None
    ) -> event_service_pb2.SendEventsResponse:
        """SendEvents. Under the same `id` it is the same request."""
        accepted = await self._acceptor.accept(tenant, await self._incoming(request), trace=trace, first_id=id)
        return _response(accepted)

    async def serve(
        self, messages: AsyncIterator[event_service_pb2.SubmitEventsRequest]
    ) -> AsyncIterator[event_service_pb2.SubmitEventsResponse]:
        """SubmitEvents."""
        async for message in self._submissions.serve(self._kind, messages):
            yield message

    async def _take(self, submission: Submission) -> None:
        """Accept what was submitted. Raises what is wrong with it."""
        incoming = await self._incoming(submission.request)

        def tell(end: list[Accepted] | Exception) -> None:
            if isinstance(end, Exception):
                submission.fail(end)
            else:
                submission.answer(_response(end))

        self._acceptor.submit(
            submission.caller.tenant,
            incoming,
            tell,
            trace=submission.trace,
            first_id=submission.id,
            again=submission.again,
        )

    async def _incoming(self, request: event_service_pb2.SendEventsRequest) -> list[Incoming]:
        # A request of megabytes must not hold up the others.
        events = await self._off_loop.run(request.ByteSize(), _valid_events, request.events, self._limits)
        return [
            Incoming(name=event.name, data=event.data, event_id=event.id, ts=event.ts, test=request.test)
            for event in events
        ]


def _response(accepted: Sequence[Accepted]) -> event_service_pb2.SendEventsResponse:
    response = event_service_pb2.SendEventsResponse()
    for each in accepted:
        tell_result(response.results.add(), each)
    return response


def _valid_events(events: Sequence[event_service_pb2.NewEvent], limits: EventLimits) -> list[NewEvent]:
    """The events of a request, all of them valid. Raises InvalidInput, or the fitting kind of it, with every fault."""
    if not events:
        raise InvalidInput.of("events", "must hold at least one event")
    if len(events) > limits.events:
        raise InvalidInput.of("events", f"at most {limits.events} events a request, these are {len(events)}")
    valid: list[NewEvent] = []
    faults: list[FieldError] = []
    kinds: set[type[InvalidInput]] = set()
    for place, event in enumerate(events):
        try:
            valid.append(_plain_event(event, limits) or _valid_event(event, f"events[{place}]", limits))
        except InvalidInput as error:
            faults += error.errors
            kinds.add(next(kind for kind in (Malformed, TooLarge, InvalidInput) if isinstance(error, kind)))
    if faults:
        raise (kinds.pop() if len(kinds) == 1 else InvalidInput).of_all(faults)
    return valid


def _plain_event(event: event_service_pb2.NewEvent, limits: EventLimits) -> NewEvent | None:
    try:
        data = event.data.decode() or "{}"
    except UnicodeDecodeError:
        return None
    return plain_event(event.name, data, id=_given(event, "id"), ts=_given(event, "ts"), limits=limits)


def _valid_event(event: event_service_pb2.NewEvent, path: str, limits: EventLimits) -> NewEvent:
    return validate_event(
        name=event.name,
        data=payload_text(event.data, root=f"{path}.data") or "{}",
        id=_given(event, "id"),
        ts=_given(event, "ts"),
        path=path,
        limits=limits,
    )


def _given(event: event_service_pb2.NewEvent, field: Literal["id", "ts"]) -> Any:
    return getattr(event, field) if event.HasField(field) else None


def tell_result(result: event_service_pb2.EventResult, accepted: Accepted) -> None:
    """What an event came to, told where it goes: a message that is given to another one is copied."""
    result.id = ulid_text(accepted.id)
    result.name = accepted.name
    if accepted.runs:
        result.run_ids.extend([ulid_text(run) for run in accepted.runs[:_MAX_RUN_IDS]])
    if accepted.duplicate:
        result.duplicate = True
    if accepted.resumed:
        result.resumed = accepted.resumed
    if accepted.cancelled:
        result.cancelled = accepted.cancelled
