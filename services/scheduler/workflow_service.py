"""The gRPC face of definitions: translates, and calls what does the work."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import workflow_service_pb2 as pb
from runr.workflows.v1 import workflow_service_pb2_grpc

from services.core.domain.errors import InvalidInput
from services.core.engine.declare import Declarer, find_workflow, workflow_record
from services.core.engine.usage import read_usage
from services.core.rpc import paging
from services.core.rpc.call_context import caller
from services.core.rpc.convert_usage import usage
from services.core.rpc.convert_workflow import archived, workflow
from services.core.rpc.server import Registration
from services.core.store.database import Database
from services.core.store.projects import get_project
from services.core.store.workflows import page_of_workflows


class WorkflowService(workflow_service_pb2_grpc.WorkflowServiceServicer):
    """See `proto/runr/workflows/v1/workflow_service.proto`."""

    def __init__(self, database: Database, declarer: Declarer) -> None:
        self._database = database
        self._declarer = declarer

    @property
    def registration(self) -> Registration:
        """How a server takes it in."""
        return workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server, self

    async def DeclareWorkflows(self, request: pb.DeclareWorkflowsRequest, context: Any) -> pb.DeclareWorkflowsResponse:
        """Replaces the project's list."""
        declared = await self._declarer.declare(caller().tenant, request.project, request.definitions)
        return pb.DeclareWorkflowsResponse(
            workflows=map(workflow, declared.records()), archived=map(archived, declared.archived)
        )

    async def ListWorkflows(self, request: pb.ListWorkflowsRequest, context: Any) -> pb.ListWorkflowsResponse:
        """A page of workflows by name."""
        tenant, size = caller().tenant, paging.page_size(request.page_size)
        position = paging.position_of(request, str)
        async with self._database.connection() as connection:
            project = await get_project(connection, tenant, request.project)
            rows = await page_of_workflows(
                connection,
                tenant,
                project.id,
                after=str(position[0]) if position else None,
                archived=request.include_archived,
                limit=size + 1,
            )
        page = rows[:size]
        return pb.ListWorkflowsResponse(
            workflows=[workflow(workflow_record(project, row)) for row in page],
            next_page_token=paging.next_token(request, [page[-1].name]) if len(rows) > size else "",
        )

    async def GetWorkflow(self, request: pb.GetWorkflowRequest, context: Any) -> pb.GetWorkflowResponse:
        """One workflow."""
        async with self._database.connection() as connection:
            project = await get_project(connection, caller().tenant, request.project)
            row = await find_workflow(connection, project, request.workflow)
        return pb.GetWorkflowResponse(workflow=workflow(workflow_record(project, row)))

    async def UpdateWorkflow(self, request: pb.UpdateWorkflowRequest, context: Any) -> pb.UpdateWorkflowResponse:
        """Pauses a workflow or lets it go on."""
        if not request.HasField("is_active"):
            raise InvalidInput.of("is_active", "is required: true or false")
        changed = await self._declarer.set_active(caller().tenant, request.project, request.workflow, request.is_active)
        return pb.UpdateWorkflowResponse(workflow=workflow(changed.records()[0]))

    async def StoreDefinitionsFile(
        self, request: pb.StoreDefinitionsFileRequest, context: Any
    ) -> pb.StoreDefinitionsFileResponse:
        """Stores the list that a sync falls back to."""
        checked = await self._declarer.store_file(caller().tenant, request.project, request.definitions)
        return pb.StoreDefinitionsFileResponse(
            workflows=len(checked.definitions),
            warnings=[f"{warning.path}: {warning.message}" for warning in checked.warnings],
        )

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        """Runs started and steps executed, in total, by day and by workflow."""
        found = await read_usage(
            self._database, caller().tenant, project=request.project, first=request.from_day, last=request.to_day
        )
        return usage(found)
