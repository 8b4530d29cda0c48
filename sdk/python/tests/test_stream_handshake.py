"""Who speaks to whom: both sides prove that they know the key; what the engine refuses is told in a sentence."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import grpc
import pytest
from runr.workflows.v1 import worker_service_pb2 as pb
from tests.support.certificate import self_signed

from runr_workflows import AsyncStep, ConnectError, Context, Workflows
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_engine import Manners, StreamEngine


def served(**keys: str) -> Workflows:
    """A registry with one workflow, which ends at once."""
    wf = Workflows(**{"signing_key": KEY, "signing_key_fallback": "", **keys})

    @wf.workflow("w", retries=2)
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return "done"

    return wf


async def test_hello_says_who_the_worker_is_and_what_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNR_TENANT", "acme")
    monkeypatch.setenv("RUNR_PROJECT", "shop")
    wf = served()
    async with StreamEngine() as engine, wf.connection(engine.url, max_concurrency=7, code_version=12):
        hello = (await engine.accept()).hello
    assert (hello.tenant, hello.project, hello.credits, hello.code_version) == ("acme", "shop", 7, 12)
    definitions = json.loads(hello.definitions)
    assert definitions["workflows"] == [{"name": "w", "retries": 2}]
    assert hello.definitions_hash == hashlib.sha256(hello.definitions).hexdigest()
    assert json.loads(hello.sdk)["language"] == "python"
    assert len(hello.nonce) >= 16


async def test_an_engine_that_does_not_know_the_key_is_left(caplog: pytest.LogCaptureFixture) -> None:
    async with StreamEngine(Manners(sign_with="another key")) as engine:
        with pytest.raises(ConnectError, match="did not prove") as refused:
            async with served().connection(engine.url):
                pytest.fail("it must not connect")
        assert refused.value.reason == "IMPOSTOR"
        stream = await engine.accept()
        await stream.left()
    assert KEY not in caplog.text


async def test_during_a_rotation_either_key_is_good() -> None:
    for keys in ({"signing_key_fallback": "older"}, {"signing_key": "newer", "signing_key_fallback": KEY}):
        async with StreamEngine() as engine, served(**keys).connection(engine.url, drain_seconds=0):
            stream = await engine.accept()
            stream.execute("w")
            assert (await stream.op()).last
            assert len(engine.refused) == ("signing_key" in keys)


async def test_the_engine_may_sign_with_either_key() -> None:
    wf = served(signing_key_fallback="older")
    async with StreamEngine(Manners(sign_with="older")) as engine, wf.connection(engine.url):
        await engine.accept()


async def test_a_key_that_the_engine_does_not_know_is_told_with_advice() -> None:
    wf = served(signing_key="one", signing_key_fallback="two")
    async with StreamEngine() as engine:
        with pytest.raises(ConnectError, match="RUNR_WORKFLOW_SIGNING_KEY") as refused:
            async with wf.connection(engine.url):
                pytest.fail("it must not connect")
        assert refused.value.reason == "UNAUTHENTICATED"
        assert len(engine.refused) == 2


@pytest.mark.parametrize("reason", ["UNSUPPORTED_PROTOCOL", "MISSING_FEATURE", "INVALID_HELLO", "INVALID_DEFINITIONS"])
async def test_what_stays_wrong_is_not_tried_again(reason: str) -> None:
    async with StreamEngine(Manners(goodbye=(reason, "w.timeout: too long"))) as engine:
        with pytest.raises(ConnectError, match=r"w\.timeout: too long") as refused:
            await served().connect_async(engine.url)
        assert refused.value.reason == reason
        assert len(engine.refused) == 1


async def test_what_passes_is_tried_again() -> None:
    async with StreamEngine(Manners(goodbye=("SHUTDOWN", "not now"))) as engine:
        serving = asyncio.create_task(served().connect_async(engine.url, drain_seconds=0))
        async with asyncio.timeout(10):
            while len(engine.refused) < 2:
                await asyncio.sleep(0.01)
        engine.manners = Manners()
        stream = await engine.accept()
        stream.execute("w")
        assert (await stream.op()).last
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_a_superseded_worker_stops() -> None:
    async with StreamEngine() as engine:
        serving = asyncio.create_task(served().connect_async(engine.url))
        stream = await engine.accept()
        stream.say(pb.EngineMessage(goodbye=pb.Goodbye(reason="SUPERSEDED", message="a newer stream")))
        with pytest.raises(ConnectError, match="a newer stream") as refused:
            await asyncio.wait_for(serving, 10)
        assert refused.value.reason == "SUPERSEDED"


async def test_a_server_that_takes_no_workers_is_told() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(ConnectError, match="no executor that takes workers") as refused:
            await served().connect_async(f"127.0.0.1:{port}")
        assert refused.value.reason == "REFUSED"
    finally:
        await server.stop(None)


async def test_an_engine_that_is_not_there_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async with StreamEngine() as gone:
        url = gone.url
    serving = asyncio.create_task(served().connect_async(url))
    async with asyncio.timeout(10):
        while "no connection to" not in caplog.text:
            await asyncio.sleep(0.01)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_coming_and_going_is_logged_where_nothing_else_says_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "runr_workflows")
    async with StreamEngine() as engine, served().connection(engine.url):
        await engine.accept()
    assert sum(line.startswith(f"connected to {engine.url} (engine ") for line in caplog.messages) == 1
    assert sum(line.startswith("leaving") for line in caplog.messages) == 1


async def test_warnings_of_the_engine_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    wf = served()
    async with StreamEngine(Manners(warnings=["workflows[0].colour"])) as engine, wf.connection(engine.url):
        await engine.accept()
    assert "workflows[0].colour" in caplog.text


async def test_over_tls_only_an_authority_that_is_trusted_is_spoken_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    self_signed(tmp_path)
    pem = (tmp_path / "server.pem").read_bytes()
    wf = served()
    async with StreamEngine(credentials=grpc.ssl_server_credentials([(pem, pem)])) as engine:
        url = f"https://{engine.url}"
        async with wf.connection(url, tls_ca=tmp_path / "server.pem", drain_seconds=0):
            stream = await engine.accept()
            stream.execute("w")
            assert (await stream.op()).last
        serving = asyncio.create_task(wf.connect_async(url))
        async with asyncio.timeout(10):
            while "no connection to" not in caplog.text:
                await asyncio.sleep(0.01)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
