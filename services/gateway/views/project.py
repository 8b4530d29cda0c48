"""Projects and their functions in JSON."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from runr.workflows.v1 import access_service_pb2, function_service_pb2, workflow_service_pb2

from services.core.rpc import convert
from services.gateway.views.json_parts import optional, payload, time_text
from services.gateway.views.workflow import ArchivedView, archived_views


class ProjectConfigView(msgspec.Struct, kw_only=True):
    """The configuration of a project."""

    trigger_type: str
    queue_stream: str | None


class ProjectView(msgspec.Struct, kw_only=True):
    """A project."""

    id: str
    slug: str
    name: str
    config: ProjectConfigView
    created_at: str | None


class SyncView(msgspec.Struct, kw_only=True):
    """The last sync of definitions; `sdk` is what the function said of its SDK."""

    status: str
    at: str | None
    message: str | None
    warnings: list[str]
    sdk: msgspec.Raw | None


class AppView(msgspec.Struct, kw_only=True):
    """How a project's function is reached. `sync` is null before the first one; `workers` is one executor's count."""

    project: str
    endpoint_url: str | None
    effective_url: str | None
    key_fingerprint: str
    previous_key_fingerprint: str | None
    previous_key_expires_at: str | None
    sync: SyncView | None
    queue_bridge_url: str | None
    workers: int


class ChangedAppView(AppView, kw_only=True):
    """The function after its endpoint was set, and the workflows that the sync with it has archived."""

    archived: list[ArchivedView]


class SigningKeyView(msgspec.Struct, kw_only=True):
    """The signing keys in the clear."""

    signing_key: str
    key_fingerprint: str
    previous_signing_key: str | None


def project_view(project: access_service_pb2.Project) -> ProjectView:
    """A project."""
    return ProjectView(
        id=project.id,
        slug=project.slug,
        name=project.name,
        config=ProjectConfigView(
            trigger_type=convert.word(access_service_pb2.TriggerType, project.config.trigger_type),
            queue_stream=optional(project.config, "queue_stream"),
        ),
        created_at=time_text(project, "created_at"),
    )


def sync_view(sync: function_service_pb2.SyncStatus) -> SyncView:
    """The outcome of a sync."""
    return SyncView(
        status=convert.word(function_service_pb2.SyncState, sync.state),
        at=time_text(sync, "at"),
        message=sync.message or None,
        warnings=list(sync.warnings),
        sdk=payload(sync, "sdk"),
    )


def app_view(app: function_service_pb2.App, *, own_url: str = "") -> AppView:
    """A project's function. `own_url` is the gateway's, for what has no public URL."""
    return AppView(
        project=app.project,
        endpoint_url=optional(app, "endpoint_url"),
        effective_url=app.effective_url or None,
        key_fingerprint=app.key_fingerprint,
        previous_key_fingerprint=optional(app, "previous_key_fingerprint"),
        previous_key_expires_at=time_text(app, "previous_key_expires_at"),
        sync=sync_view(app.sync) if app.HasField("sync") else None,
        queue_bridge_url=_absolute(optional(app, "queue_bridge_url"), own_url),
        workers=app.workers,
    )


def changed_app_view(
    app: function_service_pb2.App, archived: Iterable[workflow_service_pb2.ArchivedWorkflow], *, own_url: str = ""
) -> ChangedAppView:
    """A project's function after its endpoint was set."""
    view = app_view(app, own_url=own_url)
    return ChangedAppView(**msgspec.structs.asdict(view), archived=archived_views(archived))


def _absolute(url: str | None, own_url: str) -> str | None:
    return f"{own_url}{url}" if url is not None and url.startswith("/") else url


def signing_key_view(response: function_service_pb2.RevealSigningKeyResponse) -> SigningKeyView:
    """The signing keys."""
    return SigningKeyView(
        signing_key=response.signing_key,
        key_fingerprint=response.key_fingerprint,
        previous_signing_key=optional(response, "previous_signing_key"),
    )
