"""How answers and bodies travel: ETags, gzip both ways, request ids, limits of requests (docs/http-api.md)."""

from __future__ import annotations

import contextlib
import gzip
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    resources_pb2,
    run_service_pb2,
    workflow_service_pb2,
)

from services.core.domain.errors import RateLimited
from services.core.runtime.clock import SystemClock
from services.gateway.rate_limit import RateLimit
from services.gateway.representation import LEAST_BYTES
from tests.support.grpc_backend import ADMIN
from tests.support.http_gateway import BOUNDS, gateway


class HeldClock(SystemClock):
    """A monotonic clock that goes on when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def turn(self, seconds: float) -> None:
        self.now_s += seconds


WORKFLOW = "/api/projects/shop/workflows/w"
EMPTY = gzip.compress(b"{}")


def workflows(version: str = "1", padding: int = 0) -> Any:
    definition = b'{"name": "w", "description": "%s"}' % (b"x" * padding)

    async def get(request: Any, context: Any) -> Any:
        found = workflow_service_pb2.Workflow(name="w", project="shop", definition=definition, version=version)
        found.source = workflow_service_pb2.DEFINITION_SOURCE_API
        return workflow_service_pb2.GetWorkflowResponse(workflow=found)

    return {"workflow.GetWorkflow": get, "workflow.UpdateWorkflow": get}


async def test_who_has_the_answer_is_not_sent_it_again() -> None:
    async with gateway(workflows()) as client:
        first = await client.call("GET", WORKFLOW)
        tag = first.headers["ETag"]
        for given in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
            again = await client.call("GET", WORKFLOW, headers={"If-None-Match": given})
            assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
            assert again.headers["x-trace-id"]
        assert (await client.call("GET", WORKFLOW, headers={"If-None-Match": '"other"'})).status == 200
    async with gateway(workflows(version="2")) as client:
        changed = await client.call("GET", WORKFLOW, headers={"If-None-Match": tag})
    assert (changed.status, changed.json["version"]) == (200, "2")
    assert "Authorization" in changed.headers["Vary"]


@pytest.mark.parametrize("header", ["If-Match", "If-Unmodified-Since"])
async def test_a_write_under_a_condition_is_not_carried_out_regardless(header: str) -> None:
    async with gateway(workflows()) as client:
        reply = await client.call("PATCH", WORKFLOW, body={"is_active": False}, headers={header: '"1"'})
        assert header in reply.problem(501)["detail"]
        assert (await client.call("GET", WORKFLOW, headers={header: '"1"'})).status == 200


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("gzip;q=0", False), ("br", False), ("identity", False)],
)
async def test_a_long_answer_is_compressed_for_who_takes_that(accepted: str, packed: bool) -> None:
    async with gateway(workflows(padding=LEAST_BYTES)) as client:
        reply = await client.call("GET", WORKFLOW, headers={"Accept-Encoding": accepted})
        assert (reply.headers.get("Content-Encoding") == "gzip") is packed
        assert "Accept-Encoding" in reply.headers["Vary"]
        assert reply.json["description"] == "x" * LEAST_BYTES  # the client has unpacked it
        assert (int(reply.headers["Content-Length"]) < LEAST_BYTES) is packed
        plain = await client.call("GET", WORKFLOW, headers={"Accept-Encoding": "identity"})
    assert plain.headers["ETag"] == reply.headers["ETag"]


async def test_a_short_answer_and_a_secret_are_not_compressed() -> None:
    async def create(request: Any, context: Any) -> Any:
        return access_service_pb2.CreateTokenResponse(secret="s" * 2 * LEAST_BYTES)

    async with gateway(workflows() | {"access.CreateToken": create}) as client:
        for method, path, body in (("GET", WORKFLOW, None), ("POST", "/api/tokens", {"name": "n"})):
            reply = await client.call(method, path, body=body, headers={"Accept-Encoding": "gzip"})
            assert reply.status < 300
            assert "Content-Encoding" not in reply.headers


class Sent:
    """Takes events, and keeps the last request."""

    def __init__(self) -> None:
        self.request: Any = None

    @property
    def method(self) -> Any:
        async def send(request: Any, context: Any) -> Any:
            self.request = request
            return event_service_pb2.SendEventsResponse()

        return send


async def test_a_body_may_be_gzip() -> None:
    sent = Sent()
    async with gateway({"event.SendEvents": sent.method}) as client:
        for coding in ("gzip", "GZIP"):
            raw = gzip.compress(b'{"name": "a", "data": {"x": 1.0}}')
            reply = await client.call("POST", "/api/events", raw=raw, headers={"Content-Encoding": coding})
            assert reply.status == 200
    assert sent.request.events[0].data == b'{"x": 1.0}'


@pytest.mark.parametrize(
    "raw",
    [b"no gzip", b"", EMPTY[:-3], EMPTY + b"x", EMPTY * 2],
    ids=["no gzip", "empty", "cut", "more behind it", "twice"],
)
async def test_what_is_no_whole_gzip_is_400(raw: bytes) -> None:
    async with gateway({"event.SendEvents": Sent().method}) as client:
        (await client.call("POST", "/api/events", raw=raw, headers={"Content-Encoding": "gzip"})).problem(400)


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (BOUNDS.events_body_bytes + 1))
    assert len(bomb) < 30_000
    async with gateway({"event.SendEvents": Sent().method}) as client:
        reply = await client.call("POST", "/api/events", raw=bomb, headers={"Content-Encoding": "gzip"})
        assert reply.problem(413)["detail"].startswith("the body is limited to")


async def test_a_request_id_comes_back() -> None:
    async with gateway(workflows()) as client:
        reply = await client.call("GET", WORKFLOW, headers={"X-Request-ID": "mine-1"})
        assert reply.headers["x-request-id"] == "mine-1"
        for strange in ("", "a b", "x" * 129):
            reply = await client.call("GET", WORKFLOW, headers={"X-Request-ID": strange})
            assert reply.headers["x-request-id"] == reply.headers["x-trace-id"]


async def test_a_token_that_asks_too_often_is_told_when_to_ask_again() -> None:
    clock = HeldClock()
    async with gateway(workflows(), limit=RateLimit(2, 3, clock)) as client:
        replies = [await client.call("GET", WORKFLOW) for _ in range(3)]
        told = [reply.headers["RateLimit"] for reply in replies]
        assert told == ['"token";r=2;t=1', '"token";r=1;t=1', '"token";r=0;t=2']
        assert replies[0].headers["RateLimit-Policy"] == '"token";q=3;w=2'
        refused = await client.call("GET", WORKFLOW)
        refused.problem(429)
        assert (refused.headers["Retry-After"], refused.headers["RateLimit"]) == ("1", '"token";r=0;t=2')
        # Nobody else is refused for it, and who needs no token is not counted.
        assert (await client.call("GET", "/api/healthz", token=None)).status == 200
        (await client.call("GET", WORKFLOW, token="another-token-0123456789")).problem(401)
        clock.turn(0.5)
        assert (await client.call("GET", WORKFLOW)).status == 200


async def test_a_secret_is_one_however_it_is_written() -> None:
    written = [
        {"Authorization": f"Bearer {ADMIN}"},
        {"Authorization": f"bearer {ADMIN}"},
        {"Authorization": f"BEARER   {ADMIN}"},
        {"Authorization": f"Bearer {ADMIN}", "Cookie": "other=1"},
    ]
    signed_in = [
        {"Cookie": f"__Host-runr_session={ADMIN}"},
        {"Cookie": f"other=1; __Host-runr_session={ADMIN}; more=2"},
        {"Cookie": f'__Host-runr_session="{ADMIN}"'},
    ]
    for ways in (written, signed_in):
        async with gateway(workflows(), limit=RateLimit(1, len(ways), HeldClock())) as client:
            for headers in ways:
                assert (await client.call("GET", WORKFLOW, token=None, headers=headers)).status == 200
            for headers in ways:
                (await client.call("GET", WORKFLOW, token=None, headers=headers)).problem(429)
            for nothing in ({"Cookie": "other=1"}, {"Authorization": "Basic YTpi"}):
                (await client.call("GET", WORKFLOW, token=None, headers=nothing)).problem(401)


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 40))
def test_over_any_time_no_more_pass_than_the_limit_says(seed: int, per_second: int, burst: int) -> None:
    source, clock = random.Random(seed), HeldClock()
    limit = RateLimit(per_second, burst, clock)
    passed, began = 0, clock.monotonic()
    for _ in range(200):
        clock.turn(source.random() / per_second)
        with contextlib.suppress(RateLimited):
            limit.take("t")
            passed += 1
    assert passed <= max(burst, per_second) + (clock.monotonic() - began) * per_second + 1e-6


def test_tokens_beyond_what_is_remembered_push_out_the_oldest() -> None:
    limit = RateLimit(1, 1, HeldClock())
    limit.take("first")
    for n in range(10_000):
        limit.take(f"t{n}")
    limit.take("first")
    with pytest.raises(RateLimited):
        limit.take("t9999")


async def test_what_a_run_shows_is_tagged_too() -> None:
    async def get(request: Any, context: Any) -> Any:
        return run_service_pb2.GetRunResponse(
            run=resources_pb2.Run(id="r", state=resources_pb2.RUN_STATE_RUNNING, source=resources_pb2.RUN_SOURCE_API)
        )

    async with gateway({"run.GetRun": get}) as client:
        tag = (await client.call("GET", "/api/runs/r")).headers["ETag"]
        assert (await client.call("GET", "/api/runs/r", headers={"If-None-Match": tag})).status == 304
