"""Payloads on the subjects: `runr.workflows.internal.v1` messages to values and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from google.protobuf.message import DecodeError
from runr.workflows.internal.v1 import dispatch_pb2

MAX_RUNS = 256
"""Runs that one message may name."""

_READY_RUNS = 16


class ReadyHint(NamedTuple):
    """Runs that are probably ready, and the W3C trace context of what made them so ("" for none)."""

    run_ids: tuple[UUID, ...]
    traceparent: str


class BadPayload(Exception):
    """Bytes that are not a message of this subject. A hint like that is dropped."""


def in_pieces(run_ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    """The runs of some ready hints, few enough that several executors get their share."""
    for start in range(0, len(run_ids), _READY_RUNS):
        yield run_ids[start : start + _READY_RUNS]


def encode_ready(run_ids: Sequence[UUID], traceparent: str) -> bytes:
    """A ready hint."""
    return bytes(
        dispatch_pb2.ReadyHint(run_ids=[run.bytes for run in run_ids], traceparent=traceparent).SerializeToString()
    )


def decode_ready(data: bytes) -> ReadyHint:
    """Raises BadPayload."""
    message = dispatch_pb2.ReadyHint()
    _parse(message, data)
    return ReadyHint(_ids(message.run_ids), message.traceparent)


def encode_cancel(run_ids: Sequence[UUID]) -> bytes:
    """A cancel notice."""
    return bytes(dispatch_pb2.CancelNotice(run_ids=[run.bytes for run in run_ids]).SerializeToString())


def decode_cancel(data: bytes) -> tuple[UUID, ...]:
    """The runs that are no longer the receiver's. Raises BadPayload."""
    message = dispatch_pb2.CancelNotice()
    _parse(message, data)
    return _ids(message.run_ids)


def encode_mail(run_ids: Sequence[UUID]) -> bytes:
    """A notice of deliveries."""
    return bytes(dispatch_pb2.MailNotice(run_ids=[run.bytes for run in run_ids]).SerializeToString())


def decode_mail(data: bytes) -> tuple[UUID, ...]:
    """The receiver's runs that got something. Raises BadPayload."""
    message = dispatch_pb2.MailNotice()
    _parse(message, data)
    return _ids(message.run_ids)


def encode_pool(workflows: Sequence[int]) -> bytes:
    """A hint that these workflows, which only workers serve, have runs."""
    return bytes(dispatch_pb2.PoolHint(workflows=workflows).SerializeToString())


def decode_pool(data: bytes) -> tuple[int, ...]:
    """The workflows. Raises BadPayload."""
    message = dispatch_pb2.PoolHint()
    _parse(message, data)
    return tuple(message.workflows)


def encode_timers(run_id: UUID, due_ms: Sequence[int]) -> bytes:
    """Timers of one run, unix milliseconds."""
    timers = [dispatch_pb2.TimerHint.Timer(run_id=run_id.bytes, due_at_ms=due) for due in due_ms]
    return bytes(dispatch_pb2.TimerHint(timers=timers).SerializeToString())


def decode_timers(data: bytes) -> tuple[tuple[UUID, int], ...]:
    """Pairs of a run and when its timer is due. Raises BadPayload."""
    message = dispatch_pb2.TimerHint()
    _parse(message, data)
    runs = _ids(timer.run_id for timer in message.timers)
    return tuple(zip(runs, (timer.due_at_ms for timer in message.timers), strict=True))


def encode_defs(tenant: int) -> bytes:
    """A change of a tenant's definitions."""
    return bytes(dispatch_pb2.DefsChanged(tenant=tenant).SerializeToString())


def decode_defs(data: bytes) -> int:
    """The tenant. Raises BadPayload."""
    message = dispatch_pb2.DefsChanged()
    _parse(message, data)
    return int(message.tenant)


def _parse(
    message: dispatch_pb2.ReadyHint
    | dispatch_pb2.TimerHint
    | dispatch_pb2.CancelNotice
    | dispatch_pb2.MailNotice
    | dispatch_pb2.PoolHint
    | dispatch_pb2.DefsChanged,
    data: bytes,
) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadPayload("not a message of this subject") from error


def _ids(values: Iterable[bytes]) -> tuple[UUID, ...]:
    try:
        return tuple(UUID(bytes=bytes(value)) for value in values)
    except ValueError as error:
        raise BadPayload("a run id is 16 bytes") from error
