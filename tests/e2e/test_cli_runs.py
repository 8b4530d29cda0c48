"""`runr runs`, `runr events` and `runr workflows list`: a day of an operator, who has no other tool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from runr_workflows import Context, Step, StepError, Workflows

from tests.support.cli import Shell
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.waiting import until
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="the command line knows of the API alone")

BIG = '{"id": 12345678901234567890123, "price": 1.0, "e": "\\u00e9"}'
GIVEN_BACK = '{"id":12345678901234567890123,"price":1.0,"e":"é"}'
"""As the SDK writes it."""


def shop(wf: Workflows, bodies: Bodies) -> None:
    broken = [True]

    @wf.workflow("echo", triggers=[{"event": "said"}, {"cron": "0 6 * * *"}])
    def echo(ctx: Context, step: Step) -> Any:
        return step.run("repeat", lambda: ctx.event["data"])

    @wf.workflow("pay", retries=1)
    def pay(ctx: Context, step: Step) -> str:
        step.run("reserve", bodies.record, ctx.run_id, "reserve")
        return step.options(retries=0).run("charge", charge)

    def charge() -> str:
        if broken[0]:
            raise RuntimeError("the bank is\x1b[2J away")
        return "charged"

    @wf.workflow("repair", triggers=[{"event": "repair"}])
    def repair(ctx: Context, step: Step) -> None:
        step.run("repair", broken.clear)
        step.run("mended", broken.append, False)

    @wf.workflow("wait", triggers=[{"event": "begin"}])
    def wait(ctx: Context, step: Step) -> Any:
        try:
            return step.wait_for_event("approved", "approved", match="data.id", timeout="1h")
        except StepError:
            return None

    @wf.workflow("late")
    def late(ctx: Context, step: Step) -> Any:
        return step.wait_for_event("never", "never", timeout="1s")


async def test_a_wait_whose_time_was_up_does_not_look_like_one_that_got_its_event(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, shop):
        ended = await shell.runr("runs", "start", "late", "--wait", "--json")
        run = ended.json["id"]
        assert (ended.code, ended.json["output"]) == (0, None)
        (step,) = (await rest.run(run))["steps"]
        assert (step["status"], step["output"], step["timed_out"]) == ("completed", None, True)
        shown = (await shell.ok("runs", "show", run)).out
        assert "    its time was up before an event came: the result is null\n" in shown
        assert "never  completed: its time was up before an event came" in (await shell.ok("runs", "logs", run)).out


async def test_a_run_that_does_not_go_on_says_why(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, shop):
        later = (await shell.ok("runs", "start", "echo", "--delay", "1h")).lines[0][1]
        assert (await rest.run(later))["waiting_for"]["kind"] == "start"
        assert "  waiting    it starts at 20" in (await shell.ok("runs", "show", later)).out
        assert " starts at 20" in (await shell.ok("runs", "list", "--workflow", "echo")).out
        live = await shell.runr("runs", "show", later, "--wait", "--timeout", "10")
        assert live.err.startswith(f"{later}  queued\n{later}  starts at 20")
    run = (await shell.ok("runs", "start", "echo")).lines[0][1]

    async def tries_again() -> str | None:
        why = (await rest.run(run))["waiting_for"]
        return str(why["message"]) if why and why["kind"] == "retry" else None

    said = await until(tries_again)
    assert re.match(r"tries again at 20\S+Z, attempt [2-4], because of FunctionUnreachable: ", said)


async def test_runs_are_started_waited_for_shown_and_listed(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, shop):
        ended = await shell.runr("runs", "start", "echo", "--data", BIG, "--key", "k-1", "--tag", "t", "--wait")
        run = ended.lines[0][1]
        assert (ended.code, ended.lines[0], ended.out.splitlines()[1:]) == (
            0,
            ["started", run, "echo,", "queued"],
            [f"completed {run}", GIVEN_BACK],
        )
        again = await shell.ok("runs", "start", "echo", "--key", "k-1", "--wait", "--json")
        assert again.json["id"] == run
        assert f'"output":{GIVEN_BACK}' in again.out
        assert (await shell.ok("runs", "start", "echo", "--key", "k-1")).lines == [["found", run, "echo,", "completed"]]

        shown = (await shell.ok("runs", "show", run)).out
        assert shown.startswith(f"Run {run} of echo: completed\n")
        assert "  key        k-1\n" in shown
        assert "  tags       t\n" in shown
        assert f"  data       {BIG}\n" in shown
        assert shown.endswith(f"\n  output     {GIVEN_BACK}\n")
        assert ["repeat", "run", "completed", "1"] in [line.split()[:4] for line in shown.splitlines()]
        whole = await shell.ok("runs", "show", run, "--json")
        assert whole.out == (await rest.call("GET", f"/runs/{run}")).body.decode() + "\n"

        file = tmp_path / "data.json"
        file.write_text('{"from": "a file"}')
        assert (await shell.ok("runs", "start", "echo", "--data", f"@{file}", "--wait", "--json")).json["output"] == {
            "from": "a file"
        }
        piped = await shell.ok("runs", "start", "echo", "--data", "-", "--wait", "--json", stdin='{"from": "a pipe"}')
        assert piped.json["output"] == {"from": "a pipe"}

        table = await shell.runr("runs", "list", "--workflow", "echo", "--limit", "2")
        assert table.lines[0] == ["RUN", "WORKFLOW", "STATUS", "CREATED", "TOOK", "KEY", "OR", "ERROR"]
        assert [(line[0], line[2]) for line in table.lines[1:]] == [
            (piped.json["id"], "completed"),
            (table.lines[2][0], "completed"),
        ]
        assert "the first 2 are shown; there are more" in table.err
        found = (await shell.ok("runs", "list", "--tag", "t", "--status", "completed", "--json")).json
        assert ([each["id"] for each in found["data"]], found["next_cursor"]) == ([run], None)
        assert len((await shell.ok("runs", "list", "--all", "--json")).json["data"]) == 3
        assert (await shell.ok("runs", "list", "--status", "failed")).out == "no such runs in default\n"


async def test_failed_runs_are_found_and_let_go_on(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, shop):
        failed = await shell.runr("runs", "start", "pay", "--wait")
        run = failed.lines[0][1]
        said = f"failed    {run}  RuntimeError: the bank is [2J away"
        assert (failed.code, failed.out.splitlines()[1:]) == (1, [said])
        other = await shell.runr("runs", "start", "pay", "--wait", "--json")
        assert (other.code, other.json["status"]) == (1, "failed")
        shown = (await shell.ok("runs", "show", run)).out
        assert "attempt 1 failed at" in shown
        assert "\x1b" not in shown
        assert "the bank is [2J away" in (await shell.ok("runs", "list", "--status", "failed")).out
        assert (await shell.runr("runs", "show", run, "--wait")).code == 1

        assert (await shell.runr("events", "send", "repair", "--wait")).code == 0
        gone_on = await shell.runr("runs", "retry", run, "--wait")
        assert (gone_on.code, gone_on.out.splitlines()[1:]) == (0, [f"completed {run}", '"charged"'])

        chosen = ("--workflow", "pay", "--status", "failed")
        would = await shell.ok("runs", "retry", *chosen, "--dry-run")
        assert would.out == f"would retry 1 run of default\n          {other.json['id']}\n"
        job = await shell.ok("runs", "retry", *chosen, "--wait")
        assert job.out.splitlines()[-1].endswith("retry 1 run of default: 1 done, 0 skipped, 0 failed")
        assert await rest.completed(other.json["id"]) == "charged"
        assert (await shell.ok("runs", "job", job.lines[0][1], "--json")).json["succeeded"] == 1

        replayed = await shell.ok("runs", "replay", run, "--from-step", "charge", "--wait", "--json")
        assert (replayed.json["output"], replayed.json["id"] != run) == ("charged", True)
        refused = await shell.runr("runs", "retry", run, other.json["id"])
        assert (refused.code, refused.out, refused.err.count(" 409 ")) == (1, "", 2)


async def test_events_are_sent_and_say_what_they_did(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    async with serving(rest, shop):
        begun = await shell.ok("events", "send", "begin", "--data", '{"id": 7}', "--id", "e-1")
        (sent, _, name), (started, run) = begun.lines
        assert (sent, name, started) == ("sent", "begin", "started")
        await rest.becomes(run, "waiting")
        shown = (await shell.ok("runs", "show", run)).out
        assert "    waits for approved if " in shown
        assert " until 20" in shown
        slow = await shell.runr("runs", "show", run, "--wait", "--timeout", "1", "--json")
        assert (slow.code, slow.out, "has not ended after 1 s and goes on; its status is waiting" in slow.err) == (
            1,
            "",
            True,
        )
        live = await shell.runr("runs", "show", run, "--wait", "--timeout", "1")
        assert live.err.startswith(f"{run}  waiting\n{run}  step approved waiting\n")
        assert (await shell.ok("events", "send", "begin", "--id", "e-1")).lines[0][0] == "duplicate"
        assert (await shell.ok("events", "send", "approved", "--data", '{"id": 7}')).lines[1] == ["resumed", "1", "run"]
        assert (await rest.end(run))["status"] == "completed"
        assert "nothing came of it" in (await shell.ok("events", "send", "nobody")).out
        both = '[{"name": "said", "data": {"n": 1}}, {"name": "said", "data": {"n": 2}}]'
        ends = await shell.ok("events", "send", "--file", "-", "--wait", "--json", stdin=both)
        assert [json.loads(line)["output"] for line in ends.out.splitlines()] == [{"n": 1}, {"n": 2}]

        stopped = await shell.ok("events", "send", "begin", "--json")
        (waiting,) = stopped.json["events"][0]["runs"]
        assert (await shell.ok("runs", "cancel", waiting)).lines[0][:2] == ["cancelled", waiting]
        assert (await rest.run(waiting))["status"] == "cancelled"

        table = (await shell.ok("events", "list", "--name", "sai")).lines
        assert [(line[1], line[2], line[4]) for line in table[1:]] == [("said", "api", "1")] * 2
        assert len((await shell.ok("events", "list", "--all", "--json")).json["data"]) == 6


async def test_workflows_are_listed_with_what_starts_them(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)
    assert "has no workflows" in (await shell.ok("workflows", "list")).out
    async with serving(rest, shop):
        assert (await shell.ok("workflows", "pause", "pay", "wait")).out == "paused    pay\npaused    wait\n"
        assert (await shell.ok("workflows", "resume", "wait")).out == "active    wait\n"
        assert "409" in (await shell.runr("runs", "start", "pay")).err
        listed = [" ".join(words) for words in (await shell.ok("workflows", "list", "--tenant", rest.tenant)).lines]
        assert listed == [
            "WORKFLOW STATE SOURCE RETRIES STARTED BY",
            "echo active sync 3 said, cron 0 6 * * *",
            "late active sync 3 the API alone",
            "pay paused sync 1 the API alone",
            "repair active sync 3 repair",
            "wait active sync 3 begin",
        ]
        assert len((await shell.ok("workflows", "list", "--json")).json["data"]) == 5


async def test_what_cannot_be_done_is_said_and_has_its_exit_code(rest: Rest, tmp_path: Path) -> None:
    shell = Shell(rest, tmp_path)

    async def refused(code: int, words: str, *more: str) -> str:
        said = await shell.runr(*words.split(), *more)
        assert (said.code, said.out) == (code, ""), said
        return said.err

    assert "404" in await refused(1, "runs show 01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert "404" in await refused(1, "runs start absent")
    assert "403" in await refused(1, "runs list --tenant somebody")
    assert "status" in await refused(1, "runs list --status odd")
    assert "say which runs: ids, or a filter" in await refused(2, "runs cancel")
    assert "not both" in await refused(2, "runs cancel 01ARZ3NDEKTSV4RRFFQ69G5FAV --status queued")
    assert "--from-step is for runs that are named" in await refused(2, "runs replay --status failed --from-step a")
    assert "--dry-run is for a filter" in await refused(2, "runs retry 01ARZ3NDEKTSV4RRFFQ69G5FAV --dry-run")
    assert "--data: not JSON" in await refused(2, "runs start echo --data {")
    assert "No such file" in await refused(2, "events send said --data @nowhere")
    assert "say what is sent" in await refused(2, "events send")
    assert "--limit 0" in await refused(2, "runs list --limit 0")
    away = Shell(rest, tmp_path, RUNR_API_URL="http://127.0.0.1:1")
    assert "connection refused" in (await away.runr("runs", "list")).err
