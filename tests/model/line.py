"""The stream of a worker without gRPC: what is on its way when it breaks is lost, as on a network."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
from runr.workflows.v1 import worker_service_pb2 as pb

from services.executor.worker_stream.service import WorkerService

log = logging.getLogger("services.model")

_LONGEST_WAY_S = 0.004
_SLOW_TO_NOTICE_S = 0.05


class Line:
    """One stream: for the worker a gRPC call and its channel, at its other end the executor's service."""

    def __init__(self, service: WorkerService, rng: random.Random) -> None:
        self._rng = rng
        self._up: asyncio.Queue[pb.ConnectRequest | None] = asyncio.Queue()
        self._down: asyncio.Queue[pb.ConnectResponse | None] = asyncio.Queue()
        self._broken = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(service), name="line")

    @property
    def is_open(self) -> bool:
        """Whether anything can still come through."""
        return not self._broken.is_set()

    def cut(self) -> None:
        """Break at both ends, at once."""
        self._broken.set()
        self._serving.cancel()

    def tear(self) -> None:
        """Break; the executor may notice later than the worker."""
        self._broken.set()
        asyncio.get_running_loop().call_later(self._rng.random() * _SLOW_TO_NOTICE_S, self._serving.cancel)

    # ---- the worker's end

    async def read(self) -> Any:
        """The next response; the end of the stream; or that it is broken."""
        coming, broken = (asyncio.ensure_future(each) for each in (self._down.get(), self._broken.wait()))
        try:
            await asyncio.wait({coming, broken}, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "cut")
            response = coming.result()
            return grpc.aio.EOF if response is None else response
        finally:
            for each in (coming, broken):
                each.cancel()

    async def write(self, request: pb.ConnectRequest) -> None:
        """Send a request."""
        self._up.put_nowait(request)  # where it is broken, the reader says so

    async def done_writing(self) -> None:
        """Nothing more is sent."""
        self._up.put_nowait(None)

    def cancel(self) -> None:
        """Hang up."""
        self.cut()

    async def close(self) -> None:
        """As a channel's: nothing is left to do."""

    # ---- the executor's end

    async def _serve(self, service: WorkerService) -> None:
        try:
            async for response in service.Connect(self._requests(), None):
                await self._travel()
                self._down.put_nowait(pb.ConnectResponse.FromString(response))
        except Exception:
            log.exception("a worker's stream failed")
        finally:
            self._down.put_nowait(None)

    async def _requests(self) -> AsyncIterator[pb.ConnectRequest]:
        while (request := await self._up.get()) is not None:
            await self._travel()
            yield request

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.choice((0.0, self._rng.random() * _LONGEST_WAY_S)))
