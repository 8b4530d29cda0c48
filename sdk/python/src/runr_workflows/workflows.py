"""`Workflows`: the registry of a project's workflows, and the ways to serve them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar, Unpack, overload

from .async_step import AsyncStep
from .background import Background
from .connect.settings import ConnectOptions, WorkerSettings, worker_settings
from .context import Context
from .definition import CancelOn, Checkpoint, Concurrency, Trigger, Workflow, build_definition
from .endpoint import Answer, Endpoint
from .errors import ConnectError, DefinitionError, Duration, SettingsError
from .hooks import Hooks
from .known_options import known_options
from .program_end import ending
from .protocol import answer_headers, check_version
from .serving.asgi import AsgiApp
from .serving.faas import FaasHandler
from .serving.listening import port_of
from .serving.loop_server import LoopServer
from .serving.serve_on_loop import serve_on_loop, serve_until_cancelled
from .serving.server import serve
from .serving.wsgi import WsgiApp
from .signing_key import KEY_VARIABLE, SigningKeys
from .step import Step
from .time_zones import zone_doubts

if TYPE_CHECKING:
    from .connect.connection import Connection

_NEEDS_GRPC = (
    'wf.connect() needs gRPC: from a checkout, pip install "$RUNR/proto" "$RUNR/sdk/python[connect]";'
    " once published, pip install 'runr-workflows[connect]'"
)

_log = logging.getLogger("runr_workflows")

AnyEndpoint = TypeVar("AnyEndpoint", bound=Endpoint)
SyncFunction = TypeVar("SyncFunction", bound=Callable[[Context[Any], Step], Any])
AsyncFunction = TypeVar("AsyncFunction", bound=Callable[[Context[Any], AsyncStep], Coroutine[Any, Any, Any]])


class WorkflowDecorator(Protocol):
    """Registers a function and returns it unchanged."""

    @overload
    def __call__(self, fn: AsyncFunction, /) -> AsyncFunction: ...
    @overload
    def __call__(self, fn: SyncFunction, /) -> SyncFunction: ...


class Workflows:
    """The workflows of one project.

    `signing_key` and `signing_key_fallback` default to RUNR_WORKFLOW_SIGNING_KEY and …_FALLBACK, read on each request,
    never at import. `capture_input=False` keeps the arguments of `step.run` out of the timeline. `threads` bounds the
    threads for sync functions under an event loop. `clock` gives unix seconds. `middleware` (see `Middleware`) is
    called around every invocation and step, and may change what is stored.

    Raises SettingsError, a ValueError, when RUNR_WORKFLOW_PROTOCOL is set to another protocol than v1, and for a key
    that is no text: better than at the first request. A key that looks like none an engine has made is told in the log.
    """

    @known_options()
    def __init__(
        self,
        *,
        signing_key: str | None = None,
        signing_key_fallback: str | None = None,
        capture_input: bool = True,
        threads: int = 64,
        clock: Callable[[], float] = time.time,
        middleware: Sequence[object] = (),
    ) -> None:
        check_version(os.environ)
        self._signing_keys = SigningKeys(signing_key, signing_key_fallback)
        self._workflows: dict[str, Workflow] = {}
        self._background = Background(threads)
        self._capture_input = capture_input
        self._threads = threads
        self._clock = clock
        self._hooks = Hooks(middleware).for_workflows() if middleware else None
        self._endpoint = self.endpoint(Endpoint)

    def workflow(
        self,
        name: str,
        *,
        triggers: Sequence[Trigger] | None = None,
        retries: int | None = None,
        timeout: Duration | None = None,
        concurrency: int | Concurrency | Sequence[int | Concurrency] | None = None,
        idempotency: str | None = None,
        cancel_on: Sequence[CancelOn] | None = None,
        description: str | None = None,
        checkpoint: Checkpoint | None = None,
        **unknown: Never,
    ) -> WorkflowDecorator:
        """Registers the decorated `def` or `async def` of (ctx, step) as a workflow; the function itself is unchanged.

        The options are those of engine section 1; what is left out has the engine's default. Raises DefinitionError
        naming every fault, also for a name that is taken and for options that are not known or not supported yet.
        """
        definition = build_definition(
            name,
            {
                "description": description,
                "triggers": triggers,
                "retries": retries,
                "timeout": timeout,
                "concurrency": concurrency,
                "idempotency": idempotency,
                "cancel_on": cancel_on,
                "checkpoint": checkpoint,
                **unknown,
            },
        )
        for doubt in zone_doubts(definition):
            _log.warning("workflow %s: %s", name, doubt)

        def register(fn: Callable[..., Any]) -> Any:
            is_async = inspect.iscoroutinefunction(fn)
            faults = [*_function_faults(fn), *self._name_faults(name), *self._hook_faults(is_async)]
            if faults:
                raise DefinitionError(name, faults)
            called = fn if self._hooks is None else self._hooks.around(fn, is_async=is_async)
            self._workflows[name] = Workflow(name, called, is_async, definition)
            fn.__runr_workflow__ = name  # type: ignore[attr-defined]  # read by step.invoke(id, fn)
            fn.__runr_definition__ = definition  # type: ignore[attr-defined]  # and this by client.start(fn)
            return fn

        return register

    @property
    def definitions(self) -> list[Mapping[str, Any]]:
        """The definitions as an introspect request is answered with them (the format of runr.workflows.json)."""
        return [workflow.definition for workflow in self._workflows.values()]

    def endpoint(self, kind: type[AnyEndpoint]) -> AnyEndpoint:
        """A door of another kind to these workflows: that of the test kit."""
        return kind(
            self._workflows,
            keys=self._signing_keys,
            clock=self._clock,
            background=self._background,
            capture_input=self._capture_input,
            hooks=self._hooks,
        )

    def handle_request(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Answers one engine request: HTTP status and JSON body. For transports of your own.

        Send them with `answer_headers` of the same headers.
        """
        return self._endpoint.handle(body, headers)

    async def handle_request_async(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The same on a running event loop."""
        return await self._endpoint.handle_async(body, headers)

    @staticmethod
    def answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of the answer to a request with these headers: the type, and the id that the request carries.

        Without them everything works, but the engine opens a new connection for each request.
        """
        return answer_headers(headers)

    @known_options()
    def serve(self, host: str = "0.0.0.0", port: int | None = None, *, grace: float = 30) -> None:  # noqa: S104
        """Serves until SIGTERM or SIGINT, then finishes the requests in flight within `grace` seconds.

        Async workflows share one event loop (of uvloop, where that is installed) with all their requests; where a sync
        one is among them, each connection has a thread.

        Writes one line to stderr when it listens. Raises SystemExit, with a sentence, for a port that is taken, and
        SettingsError for one that is none, which ends the program with a sentence too.
        On all interfaces by default, because a container is reached from outside and every request must be signed.
        `port` defaults to the variable PORT, else 8000.
        """
        try:
            port = self._prepared(port)
        except SettingsError as error:
            raise ending(error) from None
        gc.freeze()  # what was imported stays: no look for garbage needs to walk it
        is_async = bool(self._workflows) and all(workflow.is_async for workflow in self._workflows.values())
        try:
            if is_async:
                serve_on_loop(self.handle_request_async, list(self._workflows), host, port, grace)
            else:
                serve(self.handle_request, list(self._workflows), host, port, grace)
        finally:
            self.close()

    @known_options()
    async def serve_async(
        self,
        host: str = "0.0.0.0",  # noqa: S104
        port: int | None = None,
        *,
        grace: float = 30,
    ) -> None:
        """The same on the running loop, without signal handlers: cancel it to stop. Sync workflows run in threads."""
        server = LoopServer(self.handle_request_async, host, self._prepared(port), grace=grace)
        await serve_until_cancelled(server, list(self._workflows))

    def connect(self, url: str | None = None, **options: Unpack[ConnectOptions]) -> None:
        """Connects out to the engine and executes what it sends, until SIGTERM or SIGINT; then drains and leaves.

        `url` is the `host:port` of an executor, RUNR_WORKER_URL by default. The connection is encrypted, other than to
        a loopback address, unless `plaintext` says that the network is trusted. Both sides prove that they know the
        signing key. Options: see `ConnectOptions`. A second signal cuts off what is executed.

        Raises SettingsError for settings that are wrong or missing, ConnectError when the engine refuses the worker for
        good: uncaught, both end the program with one line on stderr and exit code 1. Raises ImportError where the extra
        `runr-workflows[connect]` is not installed. Whatever else happens to the connection is logged, and tried again.
        """
        entry = _connect_entry()
        if _is_in_a_loop():
            raise RuntimeError("wf.connect() blocks; on a running event loop: await wf.connect_async()")
        listed = ", ".join(self._workflows)
        try:
            settings = self._worker_settings(url, options)
            gc.freeze()  # as in serve
            entry.run_until_stopped(
                lambda: self._connection(settings, tells_coming_and_going=False),
                lambda: print(f"connected to {settings.target}: workflows {listed}", file=sys.stderr, flush=True),
            )
        except (ConnectError, SettingsError) as error:
            raise ending(error) from None

    async def connect_async(self, url: str | None = None, **options: Unpack[ConnectOptions]) -> None:
        """The same on the running loop, without signal handlers: cancel it to leave.

        The first cancellation drains, the second one cuts off.
        """
        async with self.connection(url, **options) as connection:
            await connection.wait()

    def connection(self, url: str | None = None, **options: Unpack[ConnectOptions]) -> Connection:
        """The same as an object: `async with wf.connection() as connection: …` connects, and drains at the end."""
        _connect_entry()
        return self._connection(self._worker_settings(url, options))

    def wsgi(self) -> WsgiApp:
        """A WSGI application that answers on every path."""
        self._signing_keys()  # what is odd about them is told now
        return WsgiApp(self.handle_request)

    def asgi(self) -> AsgiApp:
        """An ASGI application that answers on every path."""
        self._signing_keys()  # as above
        return AsgiApp(self.handle_request_async)

    @property
    def handler(self) -> FaasHandler:
        """`handler(event, context)` for function platforms; answers `{"statusCode", "headers", "body"}`."""
        self._signing_keys()  # as above
        return FaasHandler(self.handle_request)

    def close(self) -> None:
        """Ends the background threads, if there are any. They start again when they are needed."""
        self._background.close()

    def _prepared(self, port: int | None) -> int:
        """The port to serve on."""
        if not any(self._signing_keys()):
            _log.warning("no signing key is set (%s): every request will be refused with 500", KEY_VARIABLE)
        return port_of(port, os.environ)

    def _worker_settings(self, url: str | None, options: ConnectOptions) -> WorkerSettings:
        if not self._workflows:
            raise SettingsError("no workflows are registered: import the modules that define them before connecting")
        return worker_settings(url, options, keys=self._signing_keys(), environ=os.environ)

    def _connection(self, settings: WorkerSettings, *, tells_coming_and_going: bool = True) -> Connection:
        connection: Connection = _connect_entry().make_connection(
            self._workflows,
            settings,
            capture_input=self._capture_input,
            threads=self._threads,
            hooks=self._hooks,
            tells_coming_and_going=tells_coming_and_going,
        )
        return connection

    def _hook_faults(self, is_async: bool) -> list[str]:
        if self._hooks is None or is_async or not self._hooks.asynchronous:
            return []
        return [f"middleware {', '.join(self._hooks.asynchronous)} is async, and so must be the workflow: `async def`"]

    def _name_faults(self, name: str) -> list[str]:
        taken = self._workflows.get(name)
        if taken is None:
            return []
        return [f"name: {taken.fn.__module__}.{taken.fn.__qualname__} is already registered under it"]


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _connect_entry() -> Any:
    """The worker stream, which needs more than this distribution."""
    try:
        return import_module(".connect.entry", __package__)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("grpc", "google", "runr"):
            raise
        raise ImportError(_NEEDS_GRPC, name=error.name) from None


def _function_faults(fn: object) -> list[str]:
    if not inspect.isfunction(fn):
        return [f"the decorated object is a {type(fn).__name__}; decorate a function"]
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        return ["the function has a yield; steps are called, not yielded"]
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        return [f"the function takes {inspect.signature(fn)}, it must take two arguments: (ctx, step)"]
    return []
