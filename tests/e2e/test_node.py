"""A function written with the TypeScript SDK, compiled and served by Node, against the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.node import SDK, Node, find_node
from tests.support.node_project import PATIENCE_S, Function, compile_with, install_sdk, run_node, serving_script
from tests.support.rest import Rest, step_of, steps_of
from tests.support.runtimes import COMMANDS, runtime
from tests.support.stack import Stack
from tests.support.transports import only_over

pytestmark = only_over("http", because="the TypeScript SDK speaks HTTP")

INSTALLED_BY = "ci pack init pkg install install"
"""What the quickstart does with npm; `install_sdk` stands for it."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the compiled SDK and functions; `serving` fills it."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@asynccontextmanager
async def serving(rest: Rest, folder: Path) -> AsyncIterator[Function]:
    """The function of `orders.ts`, known to the client's project."""
    await compile_tests(find_node(), folder)
    async with serving_script(rest, folder / "tests" / "orders.js") as (function, workflows):
        assert workflows == ["double", "gather", "many", "nested", "process-order"]
        yield function


async def compile_tests(node: Node, folder: Path) -> None:
    """The SDK and its tests, compiled into a folder once."""
    if not (folder / "tests").exists():
        await compile_with(node, SDK, "-p", "tsconfig.tests.json", "--outDir", folder)


async def test_the_order_of_the_protocol_page(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled) as function:
        sent = await rest.send("order.created", {"order_id": "o-1", "total": 42})
        (order,) = sent["runs"]
        waiting = await rest.becomes(order, "waiting")
        assert step_of(waiting, "shipped")["wait"]["event"] == "order.shipped"
        assert (await rest.send("order.shipped", {"order_id": "o-2", "carrier": "pigeon"}))["resumed"] == 0
        assert (await rest.send("order.shipped", {"order_id": "o-1", "carrier": "dhl"}))["resumed"] == 1
        found = await rest.end(order)
        assert found["output"] == {"status": "done", "by": "dhl", "reservation": "r-o-1"}
        assert steps_of(found) == dict.fromkeys(("reserve", "charge", "cool-off", "shipped"), "completed")
        assert step_of(found, "reserve")["input"] == [{"order_id": "o-1", "total": 42}]
        (busy, charged) = step_of(found, "charge")["attempts"]
        assert (busy["error"]["message"], charged["error"]) == ("the bank is busy", None)
        assert "orders" in busy["error"]["stack"]
        assert function.of(order) == {"reserve": 1, "charge": 2}


async def test_a_step_that_failed_for_good_is_caught(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled) as function:
        order = await rest.start("process-order", {"order_id": "o-1", "total": 101})
        assert await rest.completed(order) == {"status": "declined", "why": "card declined"}
        assert steps_of(await rest.run(order))["charge"] == "failed"
        assert function.of(order) == {"reserve": 1, "charge": 2}


async def test_steps_of_every_kind(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled) as function:
        gather = await rest.start("gather")
        assert await rest.completed(gather) == {"letters": ["a", "b", "c"], "doubled": 42, "sent": 1}
        found = await rest.run(gather)
        wanted = ("letter", "letter:1", "letter:2", "child", "past", "tell")
        assert steps_of(found) == dict.fromkeys(wanted, "completed")
        assert function.of(gather) == {"a": 1, "b": 1, "c": 1}


async def test_nested_steps_fail_the_run_at_once(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled):
        found = await rest.end(await rest.start("nested"))
    assert (found["status"], found["error"]["name"]) == ("failed", "NestedStepError")
    assert found["error"]["message"] == 'step "inner" was called inside step "outer": steps cannot be nested'


async def test_several_steps_an_answer(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled) as function:
        definitions = (await rest.ok("GET", f"/projects/{rest.project}/workflows"))["data"]
        many = await rest.start("many")
        assert await rest.completed(many) == sum(range(12)) + 1
        found = await rest.run(many)
        wanted = ("add", *(f"add:{number}" for number in range(1, 12)), "nap", "after")
        assert list(steps_of(found).items()) == [(step, "completed") for step in wanted]
        assert function.of(many) == {f"add-{number}": 1 for number in range(12)}
        (definition,) = [each for each in definitions if each["name"] == "many"]
        assert definition["checkpoint"] == {"max_steps": 5, "max_time": "10s"}


async def test_the_client(rest: Rest, compiled: Path) -> None:
    async with serving(rest, compiled):
        node = find_node()
        known = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token}
        said = await run_node(node, compiled / "tests" / "client-story.js", rest.project, environ=known)
    assert said == "told\n"


@pytest.mark.parametrize("name", COMMANDS)
async def test_another_runtime(rest: Rest, compiled: Path, name: str) -> None:
    """Where it is installed: the order, steps of every kind, several steps an answer, nested steps, and the client."""
    command = runtime(name)
    await compile_tests(find_node(), compiled)
    async with serving_script(rest, compiled / "tests" / "orders.js", command=command) as (function, _):
        known = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token}
        client = (*command[1:], compiled / "tests" / "client-story.js", rest.project)
        assert await run_node(Node(Path(command[0]), ()), *client, environ=known) == "told\n"
        order = await rest.start("process-order", {"order_id": "o-7", "total": 42})
        await rest.becomes(order, "waiting")
        await rest.send("order.shipped", {"order_id": "o-7", "carrier": "dhl"})
        assert await rest.completed(order) == {"status": "done", "by": "dhl", "reservation": "r-o-7"}
        assert function.of(order) == {"reserve": 1, "charge": 2}
        gathered = {"letters": ["a", "b", "c"], "doubled": 42, "sent": 1}
        assert await rest.completed(await rest.start("gather")) == gathered
        assert await rest.completed(await rest.start("many")) == sum(range(12)) + 1
        assert (await rest.end(await rest.start("nested")))["error"]["name"] == "NestedStepError"


@pytest.mark.parametrize(("story", "said"), [("kit-parity", "34 stories\n"), ("sealed-story", "sealed\n")])
async def test_a_story_that_serves_itself(rest: Rest, compiled: Path, story: str, said: str) -> None:
    """The kit for tests does as the engine does; what is encrypted by middleware cannot be read in the engine."""
    node = find_node()
    await compile_tests(node, compiled)
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    known = {
        "RUNR_API_URL": rest.base,
        "RUNR_TOKEN": rest.token,
        "RUNR_WORKFLOW_SIGNING_KEY": shown["signing_key"],
    }
    assert await run_node(node, compiled / "tests" / f"{story}.js", rest.project, environ=known) == said


async def test_a_project_of_a_user(rest: Rest, tmp_path: Path) -> None:
    """`examples/workflows/orders-ts` with the packed SDK: it compiles, its tests pass, and it runs."""
    node, folder = find_node(), tmp_path / "orders"
    await install_example(node, folder)
    await compile_with(node, folder)
    known = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token, "RUNR_PROJECT": rest.project}
    async with serving_script(rest, folder / "dist" / "main.js", PORT="0", ORDERS_FRAUD_CHECK="300ms") as (_, served):
        assert served == ["process-order"]
        placed = await run_node(node, "dist/place-order.js", "o-1", 42, environ=known, cwd=folder)
        again = await run_node(node, "dist/place-order.js", "o-1", 42, environ=known, cwd=folder)
        refused = await run_node(node, "dist/place-order.js", "o-2", -1, environ=known, cwd=folder)
    (failed, done) = await rest.runs()
    assert placed == f"started {done['id']}\nshipped by dhl\n"
    assert again == f"o-1 was placed before: {done['id']}\nshipped by dhl\n"
    assert refused == f"started {failed['id']}\nfailed: total must be a number that is not negative, not -1\n"
    history = tmp_path / "history.json"
    history.write_bytes((await rest.call("GET", f"/runs/{done['id']}")).body)
    told = await run_node(node, "--test", "dist/orders.test.js", environ={"ORDERS_HISTORY": str(history)}, cwd=folder)
    assert re.search(r"^# pass 5$", told, re.MULTILINE), told


async def test_the_quickstart_of_the_readme(stack: Stack, rest: Rest, tmp_path: Path) -> None:
    """Block by block in a shell, but for what asks a registry."""
    node, port = find_node(), stack.home.port("node-quickstart")
    text = (SDK / "README.md").read_text().partition("\n## Quickstart\n")[2].partition("\n## ")[0]
    variables, install, serve, register, start = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"npm (?:ci|pack|init|pkg|install)\b", install) == [
        f"npm {word}" for word in INSTALLED_BY.split()
    ]
    (tmp_path / ".runr").mkdir()
    (tmp_path / ".runr" / "stack.json").write_text(json.dumps({"api_url": rest.base, "token": rest.token}))
    folder = tmp_path / "hello-ts"
    await install_sdk(node, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    for name, code in re.findall(r"^```ts\n// (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code.replace("8000", str(port)))
    script = "\n".join((variables, serve, register, start))
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        script.replace("8000", str(port)) + "\nkill %1\nwait",
        cwd=tmp_path,
        env={**node.environ, "HOME": str(tmp_path), "npm_config_offline": "true"},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            said = (await shell.communicate())[0].decode()
    finally:
        if shell.returncode is None:
            os.killpg(shell.pid, signal.SIGKILL)
            await shell.wait()
    assert shell.returncode == 0, said
    assert '"status":"synced"' in said
    assert "}\nHELLO, ADA!\n" in said  # no prompt sticks to an answer


async def install_example(node: Node, folder: Path) -> None:
    """The example, as `npm install` leaves it behind, without asking a registry."""
    example = SDK.parents[1] / "examples" / "workflows" / "orders-ts"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    await install_sdk(node, folder)
