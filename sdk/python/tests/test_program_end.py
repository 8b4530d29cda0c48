"""What a program says that is started with wrong settings: one line, and an exit code; code can catch what it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runr_workflows import ConnectError, Context, SettingsError, Step, Workflows
from runr_workflows.program_end import ending
from sdk.python.tests.engine import KEY

PROGRAM = """
from runr_workflows import SettingsError, Workflows

wf = Workflows()

@wf.workflow("w")
def w(ctx, step):
    pass

"""
CATCHES = """
try:
    wf.connect()
except SettingsError as error:
    print("caught:", error)
"""


def started(code: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program with these variables and no others of the SDK."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNR_") and name != "PORT"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[1] / "src"), **variables},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("call", "variables", "line"),
    [
        ("wf.connect()", {}, "no signing key: set RUNR_WORKFLOW_SIGNING_KEY"),
        ("wf.connect()", {"RUNR_WORKFLOW_SIGNING_KEY": KEY}, "no address of an engine: set RUNR_WORKER_URL"),
        (
            "wf.connect('executor')",
            {"RUNR_WORKFLOW_SIGNING_KEY": KEY},
            "url (RUNR_WORKER_URL): 'executor' is no address",
        ),
        ("wf.serve()", {"RUNR_WORKFLOW_SIGNING_KEY": KEY, "PORT": "http"}, "PORT: a port from 0 to 65535, not 'http'"),
        ("wf.serve(port=70000)", {"RUNR_WORKFLOW_SIGNING_KEY": KEY}, "port: a port from 0 to 65535, not 70000"),
    ],
)
def test_a_wrong_setting_ends_the_program_with_one_line(call: str, variables: dict[str, str], line: str) -> None:
    code, _, stderr = started(call, **variables)
    assert code == 1
    (told,) = stderr.splitlines()
    assert told.startswith(line)


def test_code_can_catch_it() -> None:
    code, stdout, stderr = started(CATCHES)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("caught: no signing key: set RUNR_WORKFLOW_SIGNING_KEY")


def test_each_is_the_documented_error() -> None:
    end = ending(ConnectError("refused", "SUPERSEDED"))
    assert isinstance(end, ConnectError)
    assert isinstance(end, SystemExit)
    assert (str(end), end.reason, end.code) == ("refused", "SUPERSEDED", "refused")
    wrong = ending(SettingsError("wrong"))
    assert isinstance(wrong, ValueError)
    assert isinstance(wrong, SystemExit)
    assert (str(wrong), wrong.code) == ("wrong", "wrong")


def test_in_another_thread_where_an_exit_is_silent_the_error_is_raised_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RUNR_WORKER_URL", raising=False)
    wf = Workflows(signing_key=KEY)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        """Never run."""

    raised: list[BaseException] = []

    def work() -> None:
        try:
            wf.connect()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert [type(error) for error in raised] == [SettingsError]


async def test_on_a_loop_of_your_own_the_error_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNR_WORKER_URL", raising=False)
    wf = Workflows(signing_key=KEY)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        """Never run."""

    with pytest.raises(SettingsError, match="RUNR_WORKER_URL") as caught:
        await wf.connect_async()
    assert type(caught.value) is SettingsError
    monkeypatch.setenv("PORT", "-1")
    with pytest.raises(SettingsError, match="PORT: a port from 0") as caught:
        await wf.serve_async()
    assert type(caught.value) is SettingsError
