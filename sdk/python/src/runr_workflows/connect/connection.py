"""`Connection`: streams to the engine, one after another, until the worker leaves."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc

from ..errors import ConnectError
from .handshake import Introduction
from .session import Session
from .stream import Impostor, SaidGoodbye, Stream, StreamLost, open_stream
from .target import Target
from .unreachable import Unreachable

_FATAL = frozenset(
    {
        "SUPERSEDED",
        "UNSUPPORTED_PROTOCOL",
        "MISSING_FEATURE",
        "INVALID_HELLO",
        "UNAUTHENTICATED",
        "INVALID_DEFINITIONS",
    }
)
_FATAL_STATUS = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0

_log = logging.getLogger("runr_workflows")


class Connection:
    """A worker's connection. `async with` connects, and drains at the end; `wait` returns when it has ended.

    All of it belongs to the event loop that it is entered on; only there may its methods be called.
    """

    def __init__(
        self,
        target: Target,
        introduction: Introduction,
        keys: Sequence[str],
        session: Callable[[], Session],
        *,
        drain_s: float,
        jitter: random.Random,
        tells_coming_and_going: bool = True,
    ) -> None:
        """`session` is called on the loop, once. `tells_coming_and_going`: whether the log tells of the first
        connection, and that the worker leaves; `wf.connect()` says so itself.
        """
        self._target = target
        self._introduction = introduction
        self._keys = keys
        self._make_session = session
        self._drain_s = drain_s
        self._jitter = jitter
        self._stopping = asyncio.Event()
        self._connected = asyncio.Event()
        self._level = logging.INFO if tells_coming_and_going else logging.DEBUG
        self._is_first = True
        self._is_away_told = False
        self._unreachable = Unreachable(target)
        self._session: Session
        self._streams: dict[Stream, asyncio.Task[None]] = {}
        self._living: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns when the engine has accepted the worker; tries for as long as that takes. Raises ConnectError."""
        self._session = self._make_session()
        self._living = asyncio.ensure_future(self._live())
        connected = asyncio.ensure_future(self._connected.wait())
        try:
            await asyncio.wait({self._living, connected}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _end(self._living)
            raise
        finally:
            connected.cancel()
        if self._living.done():
            self._living.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Leaves: steps that are executed end and are sent, for as long as the drain may take."""
        self.stop()
        try:
            await self.wait()
        except asyncio.CancelledError:
            self.cut_off()
            await self.wait()
            raise

    @property
    def target(self) -> Target:
        """Where it connects to."""
        return self._target

    @property
    def is_connected(self) -> bool:
        """Whether the engine has accepted the worker; it may have been lost since, and be connecting again."""
        return self._connected.is_set()

    def stop(self) -> None:
        """Begins to leave; `wait` says when that is done."""
        self._stopping.set()

    def cut_off(self) -> None:
        """Leaves at once: what is executed is cancelled, and the engine runs it again."""
        if self._living is not None:
            self._living.cancel()

    async def wait(self) -> None:
        """Returns when the worker has left. Raises ConnectError if the engine will have it no more."""
        assert self._living is not None, "enter the connection first: async with"
        await asyncio.wait({self._living})
        if not self._living.cancelled():
            self._living.result()

    async def _live(self) -> None:
        connecting = asyncio.ensure_future(self._keep_connected())
        leaving = asyncio.ensure_future(self._leave())
        try:
            await asyncio.wait({connecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
            await _end(connecting)
            for stream in self._streams:
                stream.close()
            if self._streams:
                await asyncio.wait(set(self._streams.values()))
        finally:
            await _end(connecting, leaving, *self._streams.values())
            self._session.close()

    async def _leave(self) -> None:
        """When asked to, brings what is executed to an end."""
        await self._stopping.wait()
        _log.log(self._level, "leaving: what is executed may end within %g s", self._drain_s)
        self._session.leave(self._drain_s)
        try:
            async with asyncio.timeout(self._drain_s):
                await self._session.is_idle.wait()
        except TimeoutError:
            _log.warning("steps that took longer than %g s were cut off; the engine will run them again", self._drain_s)

    async def _keep_connected(self) -> None:
        """Has a stream at all times. Raises ConnectError when the engine will have no more of them."""
        while True:
            stream = await self._opened()
            running = self._streams[stream] = asyncio.ensure_future(self._run(stream))
            self._session.attach(stream)
            self._connected.set()
            draining = asyncio.ensure_future(stream.is_draining.wait())
            try:
                await asyncio.wait({running, draining}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                draining.cancel()
            if running.done():
                running.result()
            else:
                _log.info("the engine at %s asks for another stream", self._target)

    async def _run(self, stream: Stream) -> None:
        """One stream from its acceptance to its end. Raises ConnectError when there must not be another."""
        try:
            await stream.run(self._session.receive)
        except SaidGoodbye as goodbye:
            if goodbye.reason in _FATAL and not stream.is_draining.is_set():
                raise _refused(goodbye) from None
            _log.info("the engine closed the stream: %s %s", goodbye.reason, goodbye.message)
        except StreamLost as lost:
            self._is_away_told = True
            _log.warning("the stream to %s is lost: %s", self._target, lost)
        except Exception:
            self._is_away_told = True
            _log.exception("the stream to %s failed", self._target)
        finally:
            del self._streams[stream]
            self._session.detach(stream)

    async def _opened(self) -> Stream:
        """The next stream, tried again and again. Raises ConnectError when that is of no use."""
        pause = 0.0
        while True:
            await asyncio.sleep(pause * self._jitter.uniform(0.5, 1.0))
            pause = min(max(pause * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            try:
                stream = await self._open()
            except Impostor as impostor:
                raise ConnectError(str(impostor), "IMPOSTOR") from None
            except SaidGoodbye as goodbye:
                if goodbye.reason in _FATAL:
                    raise _refused(goodbye) from None
                self._is_away_told = True
                self._unreachable.refused(f"{goodbye.reason} {goodbye.message}")
            except StreamLost as lost:
                if self._is_first and lost.status in _FATAL_STATUS:
                    raise ConnectError(f"{self._target} is no executor that takes workers: {lost}", "REFUSED") from None
                self._is_away_told = True
                self._unreachable.tell(str(lost), was_connected=not self._is_first)
            else:
                for warning in stream.ack.warnings:
                    _log.warning("the engine does not know a field of the definitions: %s", warning)
                self._tell_connected(stream.ack.engine_version)
                return stream

    def _tell_connected(self, version: str) -> None:
        """As loud as the loss was: whoever saw that one must see that it is over."""
        again, level = "", self._level
        if not self._is_first:
            again, level = " again", logging.WARNING if self._is_away_told else logging.INFO
        self._is_first, self._is_away_told = False, False
        self._unreachable.over()
        _log.log(level, "connected%s to %s (engine %s)", again, self._target, version)

    async def _open(self) -> Stream:
        """One try; with the second key if the engine does not know the first."""
        *first, last = self._keys
        for key in first:
            try:
                return await self._open_with(key)
            except SaidGoodbye as goodbye:
                if goodbye.reason != "UNAUTHENTICATED":
                    raise
        return await self._open_with(last)

    async def _open_with(self, key: str) -> Stream:
        offered, resuming = self._session.offer(), self._session.is_resuming
        return await open_stream(
            self._target, self._introduction, self._keys, key=key, credits=offered, resuming=resuming
        )


def _refused(goodbye: SaidGoodbye) -> ConnectError:
    hint = _HINTS.get(goodbye.reason, "")
    return ConnectError(f"the engine refused the worker: {goodbye.reason}: {goodbye.message}{hint}", goodbye.reason)


_HINTS = {
    "UNAUTHENTICATED": " (tenant, project and signing key must fit together: RUNR_TENANT, RUNR_PROJECT, "
    "RUNR_WORKFLOW_SIGNING_KEY)",
}


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
