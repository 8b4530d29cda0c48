"""What somebody may have meant who named a workflow or a project that is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from services.cli.api import ApiClient, ApiFailure
from services.cli.suggest import did_you_mean

_NOT_FOUND = 404
_PAGE = "limit=200"


@asynccontextmanager
async def naming(api: ApiClient, project: str, workflow: str) -> AsyncIterator[None]:
    """Adds to a 404 of the block which workflow, or else which project, may have been meant."""
    try:
        yield
    except ApiFailure as failure:
        if failure.status != _NOT_FOUND:
            raise
        raise ApiFailure(f"{failure}{await _meant(api, project, workflow)}", failure.status) from None


async def require_workflow(api: ApiClient, project: str, workflow: str) -> None:
    """For a filter that finds nothing. Raises ApiFailure where the project has no such workflow, archived or not."""
    async with naming(api, project, workflow):
        await api.call("GET", f"/api/projects/{quote(project, safe='')}/workflows/{quote(workflow, safe='')}")


async def _meant(api: ApiClient, project: str, workflow: str) -> str:
    try:
        found = await api.call("GET", f"/api/projects/{quote(project, safe='')}/workflows?{_PAGE}")
        return did_you_mean(workflow, [each["name"] for each in found["data"]])
    except ApiFailure as failure:
        if failure.status != _NOT_FOUND:
            return ""
    try:
        found = await api.call("GET", f"/api/projects?{_PAGE}")
    except ApiFailure:
        return ""
    return did_you_mean(project, [each["slug"] for each in found["data"]])
