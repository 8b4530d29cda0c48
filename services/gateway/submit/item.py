"""A request on its way to ingest over a stream, and what kinds of streams there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runr.workflows.v1 import (
    event_service_pb2,
    event_service_pb2_grpc,
    resources_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)

from services.core.domain.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of stream. `opens` calls it on a channel, `message` holds items, `ids` counts the ids a request needs."""

    opens: Callable[[Any], Any]
    message: Any
    ids: Callable[[Any], int]


FORMS = {
    "/runr.workflows.v1.RunService/StartRun": Form(
        lambda channel: run_service_pb2_grpc.RunServiceStub(channel).SubmitStarts,
        run_service_pb2.SubmitStartsRequest,
        lambda _: 1,
    ),
    "/runr.workflows.v1.EventService/SendEvents": Form(
        lambda channel: event_service_pb2_grpc.EventServiceStub(channel).SubmitEvents,
        event_service_pb2.SubmitEventsRequest,
        lambda request: max(1, len(request.events)),
    ),
}
"""The stream on which a unary method's requests travel, by the method."""

BIG_BYTES = 256 * 1024
"""A bigger request is a call of its own: on a stream it would hold up the small ones (rulings P4)."""


class Item:
    """One request. `id` is what makes sending it again harmless; it may have been carried out once it was `sent`."""

    __slots__ = ("answer", "credentials", "deadline", "id", "request", "sent", "since", "size")

    def __init__(
        self, request: Any, credentials: resources_pb2.Credentials, id: UUID, *, size: int, now: float, timeout_s: float
    ) -> None:
        self.request = request
        self.credentials = credentials
        self.id = id.bytes
        self.size = size
        self.sent = False
        self.since = now
        self.deadline = now + timeout_s
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for its answer any more."""
        return self.answer.done()

    def settle(self, response: Any) -> None:
        """It is answered."""
        if not self.answer.done():
            self.answer.set_result(response)

    def fail(self, error: Exception) -> None:
        """It is refused, or its fate is not known."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        """Its time is over."""
        if self.sent:
            text = "ingest did not answer in time; whether it was carried out is not known"
            self.fail(Unavailable(text, reason="DEADLINE_EXCEEDED"))
        else:
            self.fail(unreachable())


def unreachable() -> Unavailable:
    """Nothing was sent: there is nobody to send it to."""
    return Unavailable("ingest cannot be reached; try again")


def cut_off() -> Unavailable:
    """It was sent, the answer was lost, and there is nobody to ask."""
    text = "ingest ended the call; whether it was carried out is not known"
    return Unavailable(text, reason="CANCELLED")
