"""Where a project's messages are delivered: the URL of its queue bridge, given or asked for.

It is derived from the project's signing key, so it changes when that is rotated.
"""

from __future__ import annotations

import re
from typing import Protocol

from services.cli.api import ApiClient, ApiFailure
from services.core.domain.queue_message import nats_stream
from services.core.runtime.lifecycle import StartRefused

_PATH = re.compile(r"/internal/workflows/queue/(?P<tenant>[^/]+)/(?P<project>[^/]+)/[^/]+/?$")


class SinkAddress(Protocol):
    """Where messages are delivered."""

    @property
    def url(self) -> str:
        """The URL, which is a secret."""
        ...

    async def renew(self) -> None:
        """Ask for it anew, where it can be asked for: the one that was known is refused."""


class GivenAddress:
    """A URL that somebody has looked up."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def renew(self) -> None:
        """Nothing: who has given it must give another one."""


class ProjectAddress:
    """The URL that the API tells of a project."""

    def __init__(self, base: str, token: str, *, project: str, tenant: str | None) -> None:
        """`token` needs `workflows.manage`."""
        self._base = base
        self._token = token
        self._project = project
        self._tenant = tenant
        self.url = ""

    async def renew(self) -> None:
        """Raises ApiFailure when it cannot be asked, StartRefused when the project has no queue bridge."""
        async with ApiClient(self._base, self._token, tenant=self._tenant) as api:
            app = await api.call("GET", f"/api/projects/{self._project}/workflows/app")
        url = app.get("queue_bridge_url")
        if not url:
            raise StartRefused(
                f"project {self._project} shows no queue bridge: it needs a queue stream, the token workflows.manage"
            )
        self.url = url

    async def stream(self) -> str:
        """The project's queue stream. Raises as `renew`."""
        async with ApiClient(self._base, self._token, tenant=self._tenant) as api:
            project = await api.call("GET", f"/api/projects/{self._project}")
        stream = project["config"].get("queue_stream")
        if not stream:
            raise StartRefused(f"project {self._project} has no queue stream: set one, or name one with --stream")
        if nats_stream(stream) is not None:
            raise StartRefused(f"the queue stream {stream} is one of NATS: ingest consumes it by itself")
        return str(stream)


def group_of(url: str) -> str:
    """The consumer group of a sink: that of its tenant and project, so that each project has every message."""
    found = _PATH.search(url)
    return "runr" if found is None else f"runr:{found['tenant']}:{found['project']}"


async def looked_up(address: ProjectAddress, stream: str) -> str:
    """The address asked for, and the stream unless it is known. Raises StartRefused."""
    try:
        await address.renew()
        return stream or await address.stream()
    except ApiFailure as failure:
        raise StartRefused(str(failure)) from failure
