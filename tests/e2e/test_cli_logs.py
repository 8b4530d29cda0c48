"""`runr` beside an operator's eyes: logs that follow, tokens, words that help, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from runr_workflows import Context, Step, Workflows

from services.core.runtime.python_child import python_command, python_environ
from tests.support.cli import Shell
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="the command line knows of the API alone")

LIMIT_S = 90.0


def deliveries(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("deliver", triggers=[{"event": "ordered"}], retries=1)
    def deliver(ctx: Context, step: Step) -> Any:
        step.run("pack", bodies.record, ctx.run_id, "pack")
        step.wait_for_event("paid", "paid", match="data.id", timeout="1h")
        return step.run("send", send, ctx.event["data"]["id"])

    @wf.workflow("stumble", retries=20)
    def stumble(ctx: Context, step: Step) -> None:
        raise ConnectionError("the shop is away")

    def send(number: int) -> int:
        if number < 0:
            raise ValueError("there is no such order")
        return number


def _hears_ctrl_c() -> None:
    """As in a terminal: what a shell without jobs starts in the background ignores it, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Running:
    """A command that goes on, and its output line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, shell: Shell, *words: str) -> Running:
        process = await asyncio.create_subprocess_exec(
            *python_command("services.cli.main", *words),
            env=python_environ(shell.environ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_hears_ctrl_c,
        )
        return cls(process)

    async def line(self, word: str) -> str:
        """The next line with this word."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            while line := (await self.process.stdout.readline()).decode():
                if word in line:
                    return line
        assert self.process.stderr is not None
        raise AssertionError(f"no line with {word}: {(await self.process.stderr.read()).decode()}")

    async def end(self) -> tuple[int, str]:
        """Exit code and what it said on stderr."""
        _, err = await asyncio.wait_for(self.process.communicate(), LIMIT_S)
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


async def test_a_run_is_followed_to_its_end(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, deliveries):
        for number, code, last in ((1, 0, "completed"), (-1, 1, "failed")):
            run = await rest.start("deliver", {"id": number})
            following = await Running.start(shell, "runs", "logs", run, "--follow")
            await following.line("paid  wait_for_event started")
            await rest.send("paid", {"id": number})
            await following.line("paid  completed")
            assert last in await following.line(f"Z  {last}")
            assert await following.end() == (code, "")
        told = await shell.ok("runs", "logs", run)
        assert "send  attempt 1 failed: ValueError: there is no such order" in told.out


async def test_a_failed_attempt_of_the_function_is_told_while_the_run_goes_on(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, deliveries):
        run = await rest.start("stumble", {})
        following = await Running.start(shell, "runs", "logs", run, "--follow")
        await following.line("function attempt 1 failed: ConnectionError: the shop is away")
        await following.line("function attempt 2 failed: ConnectionError: the shop is away")
        await shell.ok("runs", "cancel", run)  # which would have ended without, after hours
        await following.line("Z  cancelled")
        assert await following.end() == (1, "")


async def test_runs_of_a_project_are_followed_until_ctrl_c(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, deliveries):
        old = await rest.start("deliver", {"id": 1})
        following = await Running.start(shell, "workflows", "logs", "deliver", "-f")
        await following.line(old)
        run = await rest.start("deliver", {"id": 2})
        await following.line(run)
        await rest.send("paid", {"id": 2})
        await following.line(f"{run}  deliver  completed")
        following.process.send_signal(signal.SIGINT)
        assert await following.end() == (130, "")


@pytest.mark.parametrize("words", [("runs", "start", "deliver", "--wait"), ("runs", "logs", "-f")])
async def test_ctrl_c_ends_who_waits_without_a_traceback(rest: Rest, tmp_path: Path, words: tuple[str, ...]) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, deliveries):
        run = await rest.start("deliver", {"id": 1})
        waiting = await Running.start(shell, *words, *([run] if "logs" in words else []))
        await waiting.line("started")
        waiting.process.send_signal(signal.SIGINT)
        code, err = await waiting.end()
    assert (code, "Traceback" in err) == (130, False)


async def test_tokens_are_made_listed_and_taken_back(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    made = await shell.runr("tokens", "create", "ci", "--ability", "workflows.view", "--expires", "90d")
    (secret,) = made.out.splitlines()
    token = made.err.split()[1]
    assert (await rest.call("GET", "/projects", token=secret)).status == 200
    listed = (await shell.ok("tokens", "list", "--json")).json["data"]
    (row,) = [each for each in listed if each["id"] == token]
    assert (row["name"], row["abilities"]) == ("ci", ["workflows.view"])
    assert secret not in json.dumps(listed)
    table = await shell.ok("tokens", "list")
    assert ["ci" in line for line in table.lines if token in line] == [True]
    assert (await shell.ok("tokens", "revoke", token)).lines == [["revoked", token]]
    await rest.until(lambda: rest.call("GET", "/projects", token=secret), lambda reply: reply.status == 401)
    refused = await shell.runr("tokens", "create", "ci", "--ability", "workflows.everything")
    assert (refused.code, "422" in refused.err, refused.out) == (1, True, "")


async def test_what_is_wrong_is_said_in_words_that_help(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, deliveries):
        typo = await shell.runr("runs", "start", "delivr")
        assert typo.code == 1
        assert typo.err.rstrip().endswith("(did you mean deliver?)")
        for words in (
            ("runs", "list", "--workflow", "delivr"),
            ("runs", "list", "--workflow", "delivr", "--json"),
            ("workflows", "logs", "delivr"),
            ("workflows", "logs", "delivr", "-f"),
            ("runs", "cancel", "--workflow", "delivr"),
        ):
            unknown = await shell.runr(*words)
            assert (unknown.code, unknown.out) == (1, "")
            assert unknown.err.rstrip().endswith("(did you mean deliver?)")
        assert (await shell.ok("runs", "list", "--workflow", "deliver")).out == "no such runs in default\n"
        assert (await shell.ok("workflows", "logs", "deliver")).out == ""
        project = await shell.runr("runs", "start", "deliver", "--project", "defualt")
        assert project.err.rstrip().endswith("(did you mean default?)")
        late = await shell.runr("tokens", "create", "x", "--expires", "tomorrow")
        assert (late.code, "a duration, as 90d, or a time" in late.err) == (2, True)
        for said in (typo, project, late):
            assert "Traceback" not in said.err


async def test_output_is_the_same_in_a_pipe_and_without_colours(rest: Rest, tmp_path: Path) -> None:
    plain, bare = Shell(rest, tmp_path), Shell(rest, tmp_path, NO_COLOR="1", TERM="dumb", LC_ALL="C", PYTHONUTF8="0")
    async with serving(rest, deliveries):
        started = await plain.ok("runs", "start", "deliver", "--data", "-", stdin='{"id": 1, "what": "käse"}')
        run = started.lines[0][1]
        await rest.becomes(run, "waiting")
        shown, ascii_only = await plain.ok("runs", "show", run), await bare.ok("runs", "show", run)
    assert "\x1b" not in shown.out + ascii_only.out
    assert shown.out.count("käse") == 1
    assert ascii_only.out == shown.out.replace("ä", "\\xe4")


async def test_a_file_declares_the_whole_list_however_often(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    file = tmp_path / "runr.workflows.json"
    file.write_text('{"workflows": [{"name": "ship", "triggers": [{"event": "paid"}]}, {"name": "bill"}]}')
    for _ in range(2):
        declared = await shell.ok("workflows", "declare", str(file))
        assert declared.lines == [["declared", "2", "workflows", "of", "default"], ["bill"], ["ship"]]
    await shell.ok("workflows", "pause", "bill")
    await shell.ok("runs", "start", "ship", "--delay", "1h")
    again = await shell.ok("workflows", "declare", "-", stdin='[{"name": "bill"}]')
    assert again.lines[0] == ["declared", "1", "workflow", "of", "default"]
    assert sorted(again.lines[1:-1]) == [["bill", "(paused)"], ["ship", "(archived)"]]
    assert again.lines[-1][:6] == ["warning", "1", "run", "of", "ship", "is"]
    refused = await shell.runr("workflows", "declare", "-", "--json", stdin='[{"name": "bill", "retries": -1}]')
    assert (refused.code, refused.out, "retries" in refused.err) == (1, "", True)
    listed = (await shell.ok("workflows", "list", "--json")).json["data"]
    assert [(each["name"], each["source"]) for each in listed] == [("bill", "api")]
