"""Where a project's function is."""

from __future__ import annotations

from services.core.engine.definitions import ProjectEntry
from services.core.runtime.settings import FunctionSettings


def endpoint_of(project: ProjectEntry, settings: FunctionSettings) -> str | None:
    """The URL of a project's function: its own endpoint, or `https://<slug>.<domain>` of the platform, or None."""
    if project.endpoint_url:
        return project.endpoint_url
    if settings.domain:
        return f"https://{project.slug}.{settings.domain}{settings.endpoint_path}"
    return None
