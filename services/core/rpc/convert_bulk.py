"""Bulk jobs, domain → proto, and the filter of a job the other way."""

from __future__ import annotations

from runr.workflows.v1 import resources_pb2
from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.domain.bulk_job import BulkFault, BulkJob
from services.core.domain.errors import InvalidInput
from services.core.domain.op import OpError
from services.core.domain.run_record import RunFilter
from services.core.rpc.convert import failure, number, timestamp, unix_ms, word
from services.core.rpc.convert_run import id_text
from services.core.runtime.ids import ulid_text, ulid_uuid


def bulk_job(record: BulkJob) -> pb.BulkJob:
    """A job and its progress."""
    return pb.BulkJob(
        id=id_text(record.id) or "",
        project=record.project,
        action=number(pb.BulkAction, record.action),
        state=number(pb.BulkJobState, record.state),
        total=record.total,
        succeeded=record.succeeded,
        skipped=record.skipped,
        failed=record.failed,
        error=None if record.error is None else _failure(record.error),
        created_at=timestamp(record.created_ms),
        ended_at=timestamp(record.ended_ms),
        total_is_partial=record.partial,
        faults=map(_fault, record.faults),
    )


def bulk_action(request: pb.StartBulkJobRequest) -> str:
    """The word of the action that is asked for; "" where it is none."""
    return word(pb.BulkAction, request.action)


def bulk_run_filter(message: pb.RunFilter) -> RunFilter:
    """The filter of a job, without its project. Raises InvalidInput for a state, a time or an id that is none."""
    states = [word(resources_pb2.RunState, state) for state in message.states]
    for place, state in enumerate(states):
        if not state:
            raise InvalidInput.of(f"filter.states[{place}]", f"{message.states[place]} is not a state of a run")
    ids = []
    for place, text in enumerate(message.run_ids):
        try:
            ids.append(ulid_uuid(text))
        except ValueError:
            raise InvalidInput.of(f"filter.run_ids[{place}]", f"{text[:100]!r} is not the id of a run") from None
    return RunFilter(
        workflow=message.workflow or None,
        states=frozenset(states),
        since_ms=unix_ms(message, "since"),
        until_ms=unix_ms(message, "until"),
        query=message.query or None,
        tags=tuple(message.tags),
        ids=tuple(ids),
    )


def _fault(fault: BulkFault) -> pb.BulkFault:
    return pb.BulkFault(run_id=ulid_text(fault.run), error=_failure(fault.error))


def _failure(error: OpError) -> resources_pb2.Failure:
    return failure(error.name, error.message)
