"""`AsyncClient`: the client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from ..async_step import AsyncStep
from ..context import Context
from ..drive import drive_async
from ..errors import Duration
from ..event import OutgoingEvent
from ..hooks import Hooks
from ..known_options import known_options
from ..step import Step
from .asyncio_http import AsyncioHttp
from .core import Core, EventFilter, RunFilter, StartOptions, WorkflowRef, listed, outgoing
from .exchange import Flow, Pause, Request
from .settings import client_settings
from .views import Run, RunDetail, SentEvent, StoredEvent

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient:
    """Sends events, starts runs, and asks for what became of them.

    `url` and `token` are of the API, RUNR_API_URL and RUNR_TOKEN by default. `tenant` is one of the token's owner, its
    own by default. An answer may take `timeout`; what got none, or 429 or 503, is asked again up to `retries` times,
    where that can do nothing twice. `middleware` is that of the project: data that is sent is encoded, what is read
    decoded.

    Tasks may share it. Raises ValueError for settings that are wrong or missing.
    """

    @known_options()
    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        project: str = "default",
        tenant: str | None = None,
        timeout: Duration = "30s",
        retries: int = 4,
        middleware: Sequence[object] = (),
    ) -> None:
        settings = client_settings(
            url=url, token=token, project=project, tenant=tenant, timeout=timeout, retries=retries
        )
        hooks = Hooks(middleware) if middleware else None
        self._core = Core(settings, hooks)
        self._http = AsyncioHttp(settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that are kept. The client may still be used."""
        await self._http.close()

    @known_options()
    async def send(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        ts: int | datetime | None = None,
        test: bool = False,
    ) -> SentEvent:
        """Sends an event, and answers what it came to. One with an `id` is accepted once, however often it is sent.

        `ts` is when it happened; a test event starts test runs.
        """
        return (await self._drive(self._core.send([outgoing(name, data, id, ts)], test=test)))[0]

    @known_options()
    async def send_many(self, events: Iterable[OutgoingEvent], *, test: bool = False) -> list[SentEvent]:
        """Sends events, in order. A hundred are accepted or refused together."""
        return await self._drive(self._core.send(listed(events), test=test))

    @overload
    async def start(
        self,
        workflow: Callable[[Context[Any], AsyncStep], Coroutine[Any, Any, T]],
        data: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> AsyncRunHandle[T]: ...
    @overload
    async def start(
        self,
        workflow: Callable[[Context[Any], Step], T],
        data: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> AsyncRunHandle[T]: ...
    @overload
    async def start(
        self, workflow: str, data: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> AsyncRunHandle[Any]: ...
    @known_options(StartOptions)
    async def start(
        self, workflow: WorkflowRef, data: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> AsyncRunHandle[Any]:
        """Starts a run of a workflow, by its function or name, and returns once it is stored.

        With a `key`, and of a workflow that is given as its function, it starts one run, however often it has to be
        tried. By name alone it is not tried again once the request was sent: ApiUnreachable then says that it is not
        known whether the run has started.
        """
        return AsyncRunHandle(self, *await self._drive(self._core.start(workflow, data, options)))

    def run(self, run_id: str) -> AsyncRunHandle[Any]:
        """A run by its id. Asks nothing yet."""
        return AsyncRunHandle(self, run_id, False)

    @known_options(RunFilter)
    def runs(self, **asked: Unpack[RunFilter]) -> AsyncIterator[Run]:
        """The project's runs, newest first, page by page as they are asked for; without `event` and `output`."""
        return self._listed(lambda cursor: self._core.runs_page(asked, cursor))

    async def event(self, event_id: str) -> StoredEvent:
        """One event with its data, and the runs that it has started, resumed and cancelled."""
        return await self._drive(self._core.event(event_id))

    @known_options(EventFilter)
    def events(self, **asked: Unpack[EventFilter]) -> AsyncIterator[StoredEvent]:
        """The tenant's events, newest first, page by page as they are asked for; without `data`."""
        return self._listed(lambda cursor: self._core.events_page(asked, cursor))

    async def _listed(self, page: Callable[[str | None], Flow[tuple[list[R], str | None]]]) -> AsyncIterator[R]:
        cursor: str | None = None
        while True:
            found, cursor = await self._drive(page(cursor))
            for each in found:
                yield each
            if cursor is None:
                return

    async def _drive(self, flow: Flow[R]) -> R:
        return await drive_async(flow, self._perform)

    async def _perform(self, todo: Any) -> Any:
        if isinstance(todo, Request):
            return await self._http.exchange(todo)
        if isinstance(todo, Pause):
            return await asyncio.sleep(todo.seconds)
        return await todo()


class AsyncRunHandle(Generic[T]):
    """A run, as `client.start` and `client.run` give it. `is_new`: this start has made it, and no earlier one."""

    def __init__(self, client: AsyncClient, id: str, is_new: bool) -> None:
        self._client = client
        self.id = id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"AsyncRunHandle({self.id!r})"

    @known_options()
    async def result(self, timeout: Duration | None = None) -> T:  # noqa: ASYNC109  # the engine waits
        """The output of the run, waited for: for ever without a timeout. Raises RunFailed and ResultTimeout."""
        return cast(T, await self._drive(self._core.result(self.id, timeout)))

    async def get(self) -> RunDetail:
        """The run with its steps, attempts, waits and children."""
        return await self._drive(self._core.get(self.id))

    @known_options()
    async def cancel(self, *, children: Literal["cancel", "keep"] = "cancel") -> Run:
        """Cancels the run and, unless told to keep them, the active runs that it has invoked."""
        return await self._drive(self._core.cancel(self.id, children))

    async def retry(self) -> Run:
        """Lets a run that failed, was cancelled or timed out go on from where it stopped."""
        return await self._drive(self._core.retry(self.id))

    @known_options()
    async def replay(self, *, from_step: str | None = None, data: Mapping[str, Any] | None = None) -> AsyncRunHandle[T]:
        """Starts a new run with the same event or other `data`, with the results of the steps before `from_step`."""
        return AsyncRunHandle(self._client, await self._drive(self._core.replay(self.id, from_step, data)), True)

    @property
    def _core(self) -> Core:
        return self._client._core

    async def _drive(self, flow: Flow[R]) -> R:
        return await self._client._drive(flow)
