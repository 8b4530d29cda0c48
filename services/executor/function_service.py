"""The gRPC face of a project's function: translates, and calls what does the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from runr.workflows.v1 import function_service_pb2 as pb
from runr.workflows.v1 import function_service_pb2_grpc

from services.core.domain.caller import WORKFLOWS_MANAGE
from services.core.domain.errors import InvalidInput
from services.core.engine.signing_keys import fingerprint
from services.core.engine.sync import SyncStatus
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert import number, timestamp
from services.core.rpc.convert_workflow import archived, workflow
from services.core.rpc.server import Registration
from services.core.store.projects import ProjectRow
from services.executor.project_function import AppView, ProjectFunctions


class FunctionService(function_service_pb2_grpc.FunctionServiceServicer):
    """See `proto/runr/workflows/v1/function_service.proto`."""

    def __init__(self, functions: ProjectFunctions, connected: Callable[[int, int], int]) -> None:
        """`connected` counts the worker sessions of a tenant's project that are connected to this executor."""
        self._functions = functions
        self._connected = connected

    @property
    def registration(self) -> Registration:
        """How a server takes it in."""
        return function_service_pb2_grpc.add_FunctionServiceServicer_to_server, self

    async def SyncWorkflows(self, request: pb.SyncWorkflowsRequest, context: Any) -> pb.SyncWorkflowsResponse:
        """Asks the function for its definitions and declares them."""
        declared = await self._functions.sync(caller().tenant, request.project, current_call().traceparent)
        return pb.SyncWorkflowsResponse(
            sync=_sync_status(declared.project),
            workflows=map(workflow, declared.records()),
            archived=map(archived, declared.archived),
        )

    async def GetApp(self, request: pb.GetAppRequest, context: Any) -> pb.GetAppResponse:
        """How the function is reached."""
        return pb.GetAppResponse(app=self._app(await self._functions.app(caller().tenant, request.project)))

    async def UpdateApp(self, request: pb.UpdateAppRequest, context: Any) -> pb.UpdateAppResponse:
        """Sets or removes the endpoint override."""
        if not request.HasField("endpoint_url"):
            raise InvalidInput.of("endpoint_url", "is required: a URL, or empty to remove the override")
        view = await self._functions.set_endpoint(
            caller(), request.project, request.endpoint_url or None, current_call().traceparent
        )
        return pb.UpdateAppResponse(app=self._app(view), archived=map(archived, view.archived))

    async def RotateSigningKey(self, request: pb.RotateSigningKeyRequest, context: Any) -> pb.RotateSigningKeyResponse:
        """Makes a new signing key."""
        return pb.RotateSigningKeyResponse(app=self._app(await self._functions.rotate_key(caller(), request.project)))

    async def RevealSigningKey(self, request: pb.RevealSigningKeyRequest, context: Any) -> pb.RevealSigningKeyResponse:
        """Reveals the signing key."""
        keys = await self._functions.reveal_key(caller(), request.project)
        return pb.RevealSigningKeyResponse(
            signing_key=keys.current, key_fingerprint=fingerprint(keys.current), previous_signing_key=keys.previous
        )

    def _app(self, view: AppView) -> pb.App:
        project = view.project
        return pb.App(
            project=project.slug,
            endpoint_url=project.endpoint_url,
            effective_url=view.effective_url or "",
            key_fingerprint=project.key_print or "",
            previous_key_fingerprint=view.previous_fingerprint,
            previous_key_expires_at=timestamp(view.previous_until_ms),
            sync=_sync_status(project) if project.sync_status is not None else None,
            queue_bridge_url=view.queue_bridge_url if WORKFLOWS_MANAGE in caller().abilities else None,
            workers=self._connected(project.tenant, project.id),
        )


def _sync_status(project: ProjectRow) -> pb.SyncStatus:
    assert project.sync_status is not None, "asked for before the first sync"
    status = SyncStatus.from_json(project.sync_status)
    return pb.SyncStatus(
        state=cast(pb.SyncState, number(pb.SyncState, status.state)),
        at=timestamp(project.synced_ms),
        message=status.message,
        warnings=status.warnings,
        sdk=json.dumps(status.sdk).encode() if status.sdk else None,
    )
