"""Definitions of workflows in JSON: the fields of the definition as declared, and beside them their state."""

from __future__ import annotations

from typing import Any

import msgspec
from runr.workflows.v1 import workflow_service_pb2

from services.core.rpc import convert
from services.gateway.views.json_parts import time_text


class WorkflowView(msgspec.Struct, kw_only=True):
    """What is shown beside the fields of the definition (engine section 1), in the same object."""

    name: str
    project: str
    is_active: bool
    archived_at: str | None
    source: str
    version: str
    created_at: str | None
    updated_at: str | None


def workflow_view(workflow: workflow_service_pb2.Workflow) -> dict[str, Any]:
    """The definition's fields, spliced in, with the fields of `WorkflowView` before them."""
    state = WorkflowView(
        name=workflow.name,
        project=workflow.project,
        is_active=workflow.is_active,
        archived_at=time_text(workflow, "archived_at"),
        source=convert.word(workflow_service_pb2.DefinitionSource, workflow.source),
        version=workflow.version,
        created_at=time_text(workflow, "created_at"),
        updated_at=time_text(workflow, "updated_at"),
    )
    definition = msgspec.json.decode(workflow.definition or b"{}", type=dict[str, msgspec.Raw])
    shown: dict[str, Any] = msgspec.structs.asdict(state)
    return shown | {name: value for name, value in definition.items() if name not in shown}
