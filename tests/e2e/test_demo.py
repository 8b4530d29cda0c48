"""The demo as a stranger sees it."""

from __future__ import annotations

import os
import subprocess

from services.core.runtime.python_child import python_command, python_environ


def test_the_demo_loses_its_executor_and_completes() -> None:
    done = subprocess.run(
        python_command("services.cli.main", "demo"),
        env=python_environ(os.environ),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of the executor" in done.stdout
    assert 'the run has ended: completed with {"shipped": true}' in done.stdout
    assert "WorkerLost" in done.stdout
    counts = dict(line.split() for line in done.stdout.partition("Executions of each step body\n")[2].splitlines())
    assert counts["charge-card"] == "1"
    assert counts["reserve-stock"] == "2"
    assert counts["notify"] == "1"
