"""Definitions of workflows in JSON: the fields of the definition as declared, and beside them their state.

And what a list that replaces another has archived.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from runr.workflows.v1 import workflow_service_pb2

from services.core.rpc import convert
from services.gateway.views.json_parts import Page, optional, time_text


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


class ArchivedView(msgspec.Struct, kw_only=True):
    """A workflow that the new list has archived. `active_runs` go on only where it is served still; there may be more
    of them with `at_least`, and null says that counting took too long.
    """

    name: str
    active_runs: int | None
    at_least: bool


class DeclaredView(Page[WorkflowView], kw_only=True):
    """All workflows after a declaration, and those that it has archived."""

    archived: list[ArchivedView]


def archived_views(archived: Iterable[workflow_service_pb2.ArchivedWorkflow]) -> list[ArchivedView]:
    """Workflows that were archived just now."""
    return [
        ArchivedView(name=each.name, active_runs=optional(each, "active_runs"), at_least=each.at_least)
        for each in archived
    ]


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
