"""Functions that answer anything but the protocol: a failed attempt with a named reason, seen in the run."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.fake_function import FakeFunction, Op, Reply, Request, Script, Wire, completed, replaying
from tests.support.function_calls import head, silence, writing
from tests.support.rest import Json, Rest, steps_of
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="the answer to a request is what goes wrong")


async def flood(writer: asyncio.StreamWriter) -> None:
    """100 MB that were not announced."""
    for _ in range(100):
        writer.write(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        await writer.drain()


def reply(status: int = 200, body: bytes = b"", **headers: str | None) -> Script:
    """A script that always answers this."""
    return lambda _: Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


# workflow → what its function answers, the name of the fault, and words of its message
MISBEHAVIOURS: dict[str, tuple[Script, str, str]] = {
    "garbage": (reply(body=b"\xff\x00\xfegarbage"), "ProtocolError", "JSON"),
    "html": (reply(body=b"<html>hello</html>", Content_Type="text/html"), "ProtocolError", "JSON"),
    "empty": (reply(), "ProtocolError", "expected an object"),
    "json-but-no-answer": (reply(body=b'{"hello": "world"}'), "ProtocolError", "runr_workflow"),
    "another-version": (reply(body=b'{"runr_workflow": "v9", "ops": []}'), "ProtocolError", "v9"),
    "no-ops": (lambda _: [], "ProtocolError", "op"),
    "an-unknown-op": (lambda _: {"op": "dance"}, "ProtocolError", "dance"),
    "two-ops": (lambda _: [completed("a"), completed("b")], "ProtocolError", "op"),
    "500": (reply(500, b"Traceback: no luck"), "FunctionHttpError", "Traceback: no luck"),
    "404": (reply(404), "FunctionHttpError", "404"),
    "redirect": (reply(302, Location="http://127.0.0.1:1/"), "FunctionHttpError", "302"),
    "401": (reply(401, b'{"error": "bad signature"}'), "SignatureRejected", "401"),
    "hangs-up": (lambda _: writing(), "FunctionUnreachable", ""),
    "half-an-answer": (lambda _: writing(head("Content-Length: 100"), b'{"runr'), "FunctionUnreachable", ""),
    "no-http": (lambda _: writing(b"SSH-2.0-OpenSSH_9.6\r\n"), "ProtocolError", ""),
    "100-mb-announced": (lambda _: writing(head("Content-Length: 100000000"), then=silence), "AnswerTooLarge", ""),
    "100-mb-unannounced": (
        lambda _: writing(head("Transfer-Encoding: chunked"), then=flood),
        "AnswerTooLarge",
        "",
    ),
}


async def set_up(rest: Rest, function: FakeFunction) -> None:
    """Make this the function of the project."""
    app = f"/projects/{rest.project}/workflows/app"
    function.key = (await rest.ok("GET", f"{app}/signing-key"))["signing_key"]
    shown = await rest.ok("PATCH", app, {"endpoint_url": function.url})
    assert shown["sync"]["status"] == "synced", shown


async def failed(rest: Rest, function: FakeFunction, *names: str) -> dict[str, Json]:
    """A run of each of these workflows, once it has failed at its first and only attempt."""
    await set_up(rest, function)
    runs = {name: await rest.start(name) for name in names}
    ended = dict(zip(runs, await asyncio.gather(*map(rest.end, runs.values())), strict=True))
    assert len([request for request in function.requests if request.kind == "execute"]) == len(names)
    for name, run in ended.items():
        (attempt,) = run["attempts"]
        assert (name, run["status"], attempt["attempt"]) == (name, "failed", 1)
        assert (name, run["error"]) == (name, attempt["error"])
    return ended


async def test_each_misbehaviour_has_its_name(rest: Rest) -> None:
    scripts = {name: script for name, (script, _, _) in MISBEHAVIOURS.items()}
    definitions = [{"name": name, "retries": 0} for name in scripts]
    async with FakeFunction(scripts, definitions=definitions) as function:
        ended = await failed(rest, function, *scripts)
    for name, run in ended.items():
        _, fault, words = MISBEHAVIOURS[name]
        assert (name, run["error"]["name"]) == (name, fault)
        assert words in run["error"]["message"], (name, run)


async def test_an_answer_that_does_not_come_in_time_is_a_timeout(stack: Stack, rest: Rest) -> None:
    over = asyncio.Event()

    async def late(_: Request) -> Op:
        await over.wait()
        return {"op": "run_completed", "output": "late"}

    scripts: dict[str, Script] = {"nothing": lambda _: Wire(silence), "too-late": late}
    definitions = [{"name": name, "retries": 0} for name in scripts]
    async with (
        stack.given("executor", {"WORKFLOWS_REQUEST_TIMEOUT": "1s"}),
        FakeFunction(scripts, definitions=definitions) as function,
    ):
        ended = await failed(rest, function, *scripts)
        over.set()
    for run in ended.values():
        assert run["error"]["name"] == "FunctionTimeout"
        assert "1 s" in run["error"]["message"]


async def test_a_function_that_recovers_completes_its_run(rest: Rest) -> None:
    answers: list[Any] = [Reply(503, b"starting"), Reply(body=b"<html>"), Reply(200, b"")]

    def recovering(request: Request) -> Any:
        return replaying(completed("work", 1), output="fine")(request) if not answers else answers.pop(0)

    definitions = [{"name": "recovering", "retries": 3}]
    async with FakeFunction({"recovering": recovering}, definitions=definitions) as function:
        await set_up(rest, function)
        run = await rest.start("recovering")
        first = await rest.becomes(run, lambda found: found["attempts"])
        assert first["status"] == "queued"
        assert first["attempts"][0]["error"]["name"] == "FunctionHttpError"
        assert first["due_at"] is not None
        answers.clear()
        assert await rest.completed(run) == "fine"
        found = await rest.run(run)
    assert steps_of(found) == {"work": "completed"}
    assert len(found["attempts"]) == 1


async def test_a_function_that_is_not_there_is_waited_for(rest: Rest) -> None:
    definitions = [{"name": "work", "retries": 3}]
    function = FakeFunction({"work": replaying(output="fine")}, definitions=definitions)
    async with function:
        await set_up(rest, function)
    run = await rest.start("work")
    found = await rest.becomes(run, lambda found: found["attempts"])
    assert found["attempts"][0]["error"]["name"] == "FunctionUnreachable"
    async with function:
        assert await rest.completed(run) == "fine"


async def test_a_step_that_never_gets_memoized_ends_as_non_determinism(rest: Rest) -> None:
    async with FakeFunction({"loop": lambda _: completed("again", 1)}) as function:
        await set_up(rest, function)
        found = await rest.end(await rest.start("loop"))
    assert (found["status"], found["error"]["name"]) == ("failed", "NonDeterminismError")
    assert "again" in found["error"]["message"]
    assert len(function.executions("loop")) == 4


def random_ids(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("random")
    def workflow(ctx: Context, step: Step) -> None:
        for _ in range(3):
            step.run(f"a{random.random()}", bodies.record, ctx.run_id, "work")


async def test_step_ids_that_differ_at_every_call_end_as_non_determinism(rest: Rest) -> None:
    async with serving(rest, random_ids) as bodies:
        run = await rest.start("random")
        found = await rest.end(run)
    assert (found["status"], found["error"]["name"]) == ("failed", "NonDeterminismError")
    assert "must be the same at every call" in found["error"]["message"]
    assert bodies.of(run) == {"work": 100}
