"""The life of a process: order of start, drain and stop; death of a component; a drain that does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version

import aiohttp
import pytest

from services.core.runtime.health import Health, NotReady
from services.core.runtime.health_server import HealthServer
from services.core.runtime.lifecycle import Component, Supervisor
from services.core.runtime.parse import Address


class Part(Component):
    """Writes down what happens to it; behaviour is given as hooks."""

    def __init__(self, name: str, diary: list[str], **hooks: Callable[[], object]) -> None:
        self.name = name
        self._diary = diary
        self._hooks = hooks

    async def _note(self, what: str) -> None:
        self._diary.append(f"{what} {self.name}")
        outcome = self._hooks[what]() if what in self._hooks else None
        if asyncio.iscoroutine(outcome):
            await outcome

    async def start(self) -> None:
        await self._note("start")

    async def run(self) -> None:
        await self._note("run")
        if "run" not in self._hooks:
            await super().run()

    async def drain(self) -> None:
        await self._note("drain")

    async def stop(self) -> None:
        await self._note("stop")


def fail() -> None:
    raise RuntimeError("broken")


async def never() -> None:
    await asyncio.Event().wait()


async def test_start_in_order_drain_and_stop_in_reverse() -> None:
    diary: list[str] = []
    health = Health()
    supervisor = Supervisor([Part("pool", diary), Part("worker", diary)], health=health, grace_s=5)
    running = asyncio.create_task(supervisor.run())
    while diary.count("run pool") + diary.count("run worker") < 2:
        await asyncio.sleep(0)
    assert (await health.readiness())[0]
    supervisor.request_stop("test")
    assert not (await health.readiness())[0]
    assert await running == 0
    assert [entry for entry in diary if not entry.startswith("run")] == [
        "start pool",
        "start worker",
        "drain worker",
        "drain pool",
        "stop worker",
        "stop pool",
    ]


async def test_readiness_goes_before_anything_drains() -> None:
    health = Health()
    seen: list[bool] = []

    async def look() -> None:
        seen.append((await health.readiness())[0])

    supervisor = Supervisor([Part("one", [], drain=look)], health=health, grace_s=5)
    running = asyncio.create_task(supervisor.run())
    while not (await health.readiness())[0]:
        await asyncio.sleep(0)
    supervisor.request_stop("test")
    await running
    assert seen == [False]


@pytest.mark.parametrize("death", [fail, lambda: None])
async def test_a_component_that_ends_takes_the_process_down_in_order(death: Callable[[], None]) -> None:
    diary: list[str] = []
    parts = [Part("pool", diary), Part("dying", diary, run=death)]
    assert await Supervisor(parts, health=Health(), grace_s=5).run() == 1
    assert diary[-4:] == ["drain dying", "drain pool", "stop dying", "stop pool"]


async def test_a_failed_start_stops_what_was_touched() -> None:
    diary: list[str] = []
    parts = [Part("pool", diary), Part("broken", diary, start=fail), Part("later", diary)]
    with pytest.raises(RuntimeError, match="broken"):
        await Supervisor(parts, health=Health(), grace_s=5).run()
    assert diary == ["start pool", "start broken", "stop broken", "stop pool"]


async def test_a_stop_during_the_start_is_heard() -> None:
    diary: list[str] = []
    supervisor = Supervisor([Part("slow", diary, start=never)], health=Health(), grace_s=5)
    running = asyncio.create_task(supervisor.run())
    while not diary:
        await asyncio.sleep(0)
    supervisor.request_stop("test")
    assert await running == 0
    assert diary == ["start slow", "stop slow"]


async def test_a_drain_beyond_the_grace_is_cut_off_and_said() -> None:
    diary: list[str] = []
    supervisor = Supervisor([Part("stuck", diary, drain=never)], health=Health(), grace_s=0.05)
    running = asyncio.create_task(supervisor.run())
    while "run stuck" not in diary:
        await asyncio.sleep(0)
    supervisor.request_stop("test")
    assert await running == 1
    assert diary[-1] == "stop stuck"


async def test_a_second_request_ends_the_drain_at_once() -> None:
    diary: list[str] = []
    supervisor = Supervisor([Part("stuck", diary, drain=never)], health=Health(), grace_s=3_600)
    running = asyncio.create_task(supervisor.run())
    while "run stuck" not in diary:
        await asyncio.sleep(0)
    supervisor.request_stop("first")
    supervisor.request_stop("second")
    assert await running == 1


async def test_one_failing_drain_or_stop_does_not_keep_the_others_from_theirs() -> None:
    diary: list[str] = []
    parts = [Part("pool", diary), Part("broken", diary, drain=fail, stop=fail)]
    supervisor = Supervisor(parts, health=Health(), grace_s=5)
    running = asyncio.create_task(supervisor.run())
    while diary.count("run pool") + diary.count("run broken") < 2:
        await asyncio.sleep(0)
    supervisor.request_stop("test")
    assert await running == 1
    assert diary[-4:] == ["drain broken", "drain pool", "stop broken", "stop pool"]


async def test_services_in_one_process_have_their_own_checks_and_one_life() -> None:
    whole = Health()
    ingest, executor = whole.part("ingest"), whole.part("executor")

    async def away() -> None:
        raise NotReady("away")

    async def there() -> None:
        return

    ingest.register("postgres", away)
    executor.register("postgres", there)
    whole.set_started()
    assert await executor.readiness() == (True, {"process": "ok", "postgres": "ok"})
    assert await ingest.readiness() == (False, {"process": "ok", "postgres": "away"})
    assert await whole.readiness() == (False, {"process": "ok", "ingest": "postgres: away", "executor": "ok"})
    whole.set_draining()
    assert not (await executor.readiness())[0]


async def test_readiness_over_http_names_the_dependency_and_no_secret() -> None:
    health = Health()
    state: dict[str, Exception | None] = {"error": None}

    async def check() -> None:
        if state["error"]:
            raise state["error"]

    health.register("postgres", check)
    server = HealthServer(health, Address("127.0.0.1", 0), "ingest")
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://{server.address}") as client:

            async def readyz() -> tuple[int, dict[str, str]]:
                async with client.get("/readyz") as answer:
                    return answer.status, (await answer.json())["checks"]

            assert await readyz() == (503, {"process": "starting", "postgres": "ok"})
            health.set_started()
            assert await readyz() == (200, {"process": "ok", "postgres": "ok"})
            async with client.get("/readyz") as answer:
                assert (await answer.json())["version"] == version("runr-engine")
            state["error"] = OSError("password=hunter2")
            assert await readyz() == (503, {"process": "ok", "postgres": "OSError"})
            state["error"] = NotReady("clock is 6 s off")
            assert await readyz() == (503, {"process": "ok", "postgres": "clock is 6 s off"})
            async with client.get("/healthz") as answer:
                assert answer.status == 200
    finally:
        await server.stop()
        await server.stop()


async def asked_for_health(server: HealthServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200 OK"),
        (b"GET /readyz?verbose HTTP/1.0", b"503 Service Unavailable"),
        (b"HEAD /healthz HTTP/1.1", b"200 OK"),
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed"),
        (b"\x16\x03\x01 hello", b"400 Bad Request"),
        (b"GET /healthz HTTP/2.0", b"400 Bad Request"),
    ],
)
async def test_health_answers_each_request_once_and_closes(request_line: bytes, status: bytes) -> None:
    server = HealthServer(Health(), Address("127.0.0.1", 0), "ingest")
    await server.start()
    try:
        answer = await asked_for_health(server, request_line + b"\r\nHost: x\r\n\r\n")
    finally:
        await server.stop()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert first == b"HTTP/1.1 " + status
    assert b"Connection: close" in headers
    length = next(int(header.partition(b": ")[2]) for header in headers if header.startswith(b"Content-Length"))
    assert len(body) == (0 if request_line.startswith(b"HEAD") else length)


async def test_a_request_for_health_without_end_is_hung_up_on() -> None:
    server = HealthServer(Health(), Address("127.0.0.1", 0), "ingest")
    await server.start()
    try:
        assert await asked_for_health(server, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 70_000) == b""
    except ConnectionResetError:
        return  # with what it had sent unread
    finally:
        await server.stop()
