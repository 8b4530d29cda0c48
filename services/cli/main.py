"""The `runr` command (engine section 12). Exit codes: 0 done, 1 failed, 2 wrong usage or settings.

Each command is imported when it is the one that was given: a service must not pay for what people type.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from services.cli.admin.grammar import add_admin
from services.cli.failure import Failure
from services.cli.runs.grammar import add_events, add_place, add_runs, add_workflow_verbs
from services.cli.serve import MANIFOLD, MOST_PROCESSES, SERVICES, serve
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, loop_factory

_DEFINITIONS_FILE = "runr.workflows.json"


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = argparse.ArgumentParser(prog="runr", description="RunR workflows: a durable workflow engine.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    part = commands.add_parser("dev", help="everything on this machine: Postgres, NATS and the four services")
    part.add_argument("--port", type=int, help="port of the API (default: 8080, or a free one, remembered)")
    part.add_argument("--function", metavar="URL", help="register this function with the default project and sync it")

    part = commands.add_parser("serve", help="run one service, or all of them in one process")
    part.add_argument("service", choices=[*SERVICES, "all"])
    part.add_argument(
        "--processes",
        type=int,
        choices=range(1, MOST_PROCESSES + 1),
        default=1,
        metavar="N",
        help="of the executor: so many processes of it, one for a core, which share its gRPC address (default: 1)",
    )

    commands.add_parser("migrate", help="bring the database at DATABASE_URL to this version's schema")
    add_admin(commands)
    commands.add_parser("doctor", help="check the database, NATS and the services")
    part = commands.add_parser("workflows", help="the workflows of a project")
    verbs = part.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_workflow_verbs(verbs)
    part = verbs.add_parser("sync", help="ask the function for its workflows and declare them")
    add_place(part)
    part.add_argument(
        "--file",
        nargs="?",
        const=_DEFINITIONS_FILE,
        help=f"store this list first, which stands in where the function cannot be reached"
        f" (default: {_DEFINITIONS_FILE})",
    )
    part.add_argument("--json", action="store_true", help="print the API's answer")
    _add_check(verbs)
    add_runs(commands)
    add_events(commands)

    _add_conformance(commands)
    commands.add_parser("demo", help="watch an order workflow survive a kill -9")
    return top


def _add_check(verbs: Any) -> None:
    part = verbs.add_parser("check", help="ask code that is to be deployed whether it fits what is stored")
    add_place(part)
    part.add_argument("--url", help="where the code answers (default: the project's endpoint)")
    part.add_argument("--key", help="its signing key (default: RUNR_WORKFLOW_SIGNING_KEY, or the project's)")
    part.add_argument("--against-active", action="store_true", help="replay every active run, by dry requests")
    part.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
    part.add_argument("--most", metavar="N", type=int, default=10_000, help="runs at most (default: 10000)")
    part.add_argument("--json", action="store_true", help="print the findings as JSON")


def _add_conformance(commands: Any) -> None:
    part = commands.add_parser("conformance", help="hold a function server against every rule of the protocol")
    part.add_argument("url", metavar="URL", help="where the function answers")
    part.add_argument("--key", help="the signing key that it has (default: RUNR_WORKFLOW_SIGNING_KEY)")
    part.add_argument("--fallback-key", metavar="KEY", help="the key that it falls back to, if it has one")
    part.add_argument("--only", metavar="NAME", action="append", default=[], help="rules whose names begin so; repeat")
    part.add_argument("--complete", action="store_true", help="a rule that does not apply counts as failed")
    part.add_argument("--timeout", metavar="SECONDS", type=float, default=20.0, help="of one request (default: 20)")
    part.add_argument("--limit", metavar="SECONDS", type=float, default=300.0, help="of all of it (default: 300)")
    part.add_argument("--json", action="store_true", help="print the findings as JSON")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    grammar = parser()
    given = grammar.parse_args(argv)
    if given.command == "serve":
        if given.processes > 1 and given.service != MANIFOLD:
            grammar.error(f"--processes is for `serve {MANIFOLD}`: start {given.service} once for each replica")
        return serve(given.service, os.environ, processes=given.processes)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_command(given))
    except Failure as failure:
        sys.stderr.write(f"runr {given.command}: {failure}\n")
        return failure.code
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_FAILED


def _command(given: argparse.Namespace) -> Coroutine[Any, Any, int]:
    match given.command:
        case "dev":
            from services.cli import dev

            return dev.run(os.environ, port=given.port, function=given.function)
        case "migrate":
            from services.cli import migrate

            return migrate.run(os.environ)
        case "admin":
            from services.cli.admin import command as admin

            return admin.run(os.environ, given)
        case "doctor":
            from services.cli import doctor

            return doctor.run(os.environ)
        case "workflows":
            return _workflows(given)
        case "runs":
            from services.cli.runs import command as runs

            return runs.run(os.environ, given)
        case "events":
            from services.cli import events

            return events.run(os.environ, given)
        case "conformance":
            from services.cli.conformance import command

            return command.run(
                os.environ,
                url=given.url,
                key=given.key,
                fallback_key=given.fallback_key,
                only=given.only,
                complete=given.complete,
                timeout_s=given.timeout,
                limit_s=given.limit,
                json_output=given.json,
            )
        case _:
            from services.cli import demo

            return demo.run(os.environ)


def _workflows(given: argparse.Namespace) -> Coroutine[Any, Any, int]:
    match given.verb:
        case "check":
            from services.cli.check import command as check

            return check.run(
                os.environ,
                project=given.project,
                tenant=given.tenant,
                url=given.url,
                key=given.key,
                against_active=given.against_active,
                workflow=given.workflow,
                most=given.most,
                as_json=given.json,
            )
        case "list":
            from services.cli import workflow_list

            return workflow_list.run(os.environ, given)
        case "pause" | "resume":
            from services.cli import workflow_pause

            return workflow_pause.run(os.environ, given)
        case _:
            from services.cli import workflows

            return workflows.sync(
                os.environ, project=given.project, tenant=given.tenant, file=given.file, as_json=given.json
            )


if __name__ == "__main__":
    raise SystemExit(main())
