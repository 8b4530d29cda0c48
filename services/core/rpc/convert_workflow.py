"""Workflows, domain → proto."""

from __future__ import annotations

from typing import cast

from runr.workflows.v1 import workflow_service_pb2

from services.core.domain.workflow_record import WorkflowRecord
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
