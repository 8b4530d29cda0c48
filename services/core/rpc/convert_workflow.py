"""Workflows, domain → proto."""

from __future__ import annotations

from typing import cast

from runr.workflows.v1 import workflow_service_pb2

from services.core.domain.workflow_record import ArchivedRecord, WorkflowRecord
from services.core.rpc.convert import number, timestamp


def workflow(record: WorkflowRecord) -> workflow_service_pb2.Workflow:
    """A workflow."""
    source = number(workflow_service_pb2.DefinitionSource, record.source) if record.source else 0
    return workflow_service_pb2.Workflow(
        name=record.name,
        project=record.project,
        definition=record.definition.encode(),
        is_active=record.is_active,
        archived_at=timestamp(record.archived_ms),
        source=cast(workflow_service_pb2.DefinitionSource, source),
        version=record.version,
        created_at=timestamp(record.created_ms),
        updated_at=timestamp(record.updated_ms),
    )


def archived(record: ArchivedRecord) -> workflow_service_pb2.ArchivedWorkflow:
    """A workflow that was archived just now."""
    return workflow_service_pb2.ArchivedWorkflow(
        name=record.name, active_runs=record.active_runs, at_least=record.at_least
    )
