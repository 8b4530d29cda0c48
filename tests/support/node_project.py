"""A project of a user in TypeScript: the SDK in its folder, compiled, and its functions served by Node."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.node import SDK, Node, find_node
from tests.support.rest import Rest
from tests.support.workflow_app import sync

PATIENCE_S = 60.0


class Function:
    """A Node process. `executed` are the run and step of each function of a step that it has called."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._executed: list[str] = []

    async def read(self) -> None:
        """Take in what the process says, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self._executed.append(line.decode().strip())

    def of(self, run: str) -> Counter[str]:
        """Step → executions, of one run."""
        return Counter(line.split(" ")[1] for line in self._executed if line.startswith(run))


@asynccontextmanager
async def serving_script(
    rest: Rest, script: Path, *, command: Sequence[str] = (), **environ: str
) -> AsyncIterator[tuple[Function, list[str]]]:
    """A function and its workflows, known to the client's project; it must end well when it is told to.

    `command` runs the script: that of Node, if it is left out.
    """
    node = find_node()
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    process = await asyncio.create_subprocess_exec(
        *(command or (str(node.program),)),
        str(script),
        env={**node.environ, "RUNR_WORKFLOW_SIGNING_KEY": shown["signing_key"], **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    function = Function(process)
    reading = asyncio.create_task(function.read())
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            said = (await process.stderr.readline()).decode()
        url = re.search(r"serving workflows .* on (?:all interfaces, )?(http://127\.0\.0\.1:\d+)\n", said)
        assert url is not None, said + (await process.stderr.read()).decode()
        endpoint = {"endpoint_url": url[1]}
        await rest.ok("PATCH", f"/projects/{rest.project}/workflows/app", endpoint)
        yield function, await sync(rest)
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading


async def compile_with(node: Node, folder: Path, *arguments: object) -> None:
    """The TypeScript of a folder, in JavaScript."""
    compiler = SDK / "node_modules" / "typescript" / "bin" / "tsc"
    assert compiler.exists(), "the compiler of the TypeScript SDK is not installed: make node"
    await run_node(node, compiler, *arguments, cwd=folder)


async def install_sdk(node: Node, folder: Path) -> None:
    """The SDK, the compiler, the types of Node, and web frameworks for them that use one, in a folder of a user."""
    modules = folder / "node_modules"
    installed = modules / "@runr" / "workflows"
    installed.mkdir(parents=True)
    shutil.copy(SDK / "package.json", installed)
    await compile_with(node, SDK, "-p", "tsconfig.json", "--outDir", installed / "dist")
    for name in ("@types", "typescript", ".bin", "hono", "express"):
        (modules / name).symlink_to(SDK / "node_modules" / name)


async def run_node(
    node: Node, *command: object, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """What a script says on stdout; it must end well."""
    process = await asyncio.create_subprocess_exec(
        node.program,
        *map(str, command),
        cwd=cwd,
        env={**node.environ, **(environ or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()
