"""The `runr` command (engine section 12). Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 interrupted.

Each command is imported when it is the one that was given: a service must not pay for what people type.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from services.cli.access.grammar import add_login, add_tokens
from services.cli.admin.grammar import add_admin
from services.cli.failure import Failure
from services.cli.grammar import SHELLS, Grammar, ShowVersion
from services.cli.queue.grammar import add_queue
from services.cli.runs.grammar import add_events, add_json, add_place, add_runs, add_workflow_verbs, verbs_of
from services.cli.serve import MANIFOLD, MOST_PROCESSES, SERVICES, serve
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, loop_factory

EXIT_INTERRUPTED = 130
"""What shells make of a program that Ctrl-C has ended."""

_TRACEBACK = "RUNR_TRACEBACK"
_NO_TOKEN = 401
_DEFINITIONS_FILE = "runr.workflows.json"


def parser() -> Grammar:
    """The grammar of the command line."""
    top = Grammar(prog="runr", description="RunR workflows: a durable workflow engine.")
    top.add_argument("--version", action=ShowVersion, nargs=0, help="print the version of the engine and end")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    part = commands.add_parser("dev", help="everything on this machine: Postgres, NATS and the four services")
    part.add_argument("--port", type=int, help="port of the API (default: 8080, or a free one, remembered)")
    part.add_argument("--function", metavar="URL", help="register this function with the default project and sync it")

    part = commands.add_parser("serve", help="run one service, or all of them in one process")
    part.add_argument("service", choices=[*SERVICES, "all"], help="which one")
    part.add_argument(
        "--processes",
        type=int,
        choices=range(1, MOST_PROCESSES + 1),
        default=1,
        metavar="N",
        help="of the executor: so many processes of it, one for a core, which share its gRPC address (default: 1)",
    )

    part = commands.add_parser("migrate", help="bring the database at DATABASE_URL to this version's schema")
    add_json(part, "print what was applied as JSON")
    add_admin(commands)
    part = commands.add_parser("doctor", help="check the database, NATS and the services, and what must always hold")
    part.add_argument(
        "--health",
        metavar="NAME=HOST:PORT",
        action="append",
        default=[],
        help="where a service tells its health, instead of the default addresses; repeat; `none`: ask no service",
    )
    part.add_argument("--json", action="store_true", help="print the findings as JSON")
    part = commands.add_parser("workflows", help="the workflows of a project")
    verbs = verbs_of(part)
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
    add_json(part, "print the API's answer")
    _add_check(verbs)
    add_runs(commands)
    add_events(commands)
    add_tokens(commands)
    add_login(commands)
    add_queue(commands)
    _add_conformance(commands)
    commands.add_parser("demo", help="watch an order workflow survive a kill -9")
    part = commands.add_parser("completion", help="print what makes a shell complete the words of runr")
    part.add_argument("shell", choices=SHELLS, help="which shell")
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
    command = ""
    try:
        grammar = parser()
        given = grammar.parse_args(argv)
        command = f" {given.command}"
        if given.command == "serve":
            if given.processes > 1 and given.service != MANIFOLD:
                grammar.error(f"--processes is for `serve {MANIFOLD}`: start {given.service} once for each replica")
            return serve(given.service, os.environ, processes=given.processes)
        if given.command == "queue":
            from services.cli.queue import command as queue

            return queue.consume(os.environ, given)
        return _run(given, grammar)
    except Failure as failure:
        sys.stderr.write(f"runr{command}: {failure}\n")
        return failure.code
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        sys.stderr.write(
            f"runr{command}: a fault of ours: {type(error).__name__}: {error}\n"
            f"With {_TRACEBACK}=1 it says where; please report that\n"
        )
        return EXIT_FAILED


def _run(given: argparse.Namespace, grammar: Grammar) -> int:
    """A command that is not a service."""
    from services.cli.reach import place, whose_token, with_context

    # What a terminal cannot show is shown as it can.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if given.command == "completion":
        from services.cli.completion import script

        sys.stdout.write(script(given.shell, grammar))
        return EXIT_OK
    environ = with_context(os.environ, getattr(given, "context", None))
    place(environ, given)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_command(given, environ))
    except Failure as failure:
        from services.cli.api import ApiFailure

        if not isinstance(failure, ApiFailure) or failure.status != _NO_TOKEN or not hasattr(given, "has_project"):
            raise
        raise Failure(f"{failure}: it is that of {whose_token(environ)}") from failure


def _command(given: argparse.Namespace, environ: Mapping[str, str]) -> Coroutine[Any, Any, int]:
    match given.command:
        case "dev":
            from services.cli import dev

            return dev.run(environ, port=given.port, function=given.function)
        case "migrate":
            from services.cli import migrate

            return migrate.run(environ, as_json=given.json)
        case "admin":
            from services.cli.admin import command as admin

            return admin.run(environ, given)
        case "doctor":
            from services.cli.doctor import command as doctor

            return doctor.run(environ, health=given.health, as_json=given.json)
        case "workflows":
            return _workflows(given, environ)
        case "runs":
            from services.cli.runs import command as runs

            return runs.run(environ, given)
        case "tokens":
            from services.cli.access import tokens

            return tokens.run(environ, given)
        case "login" | "logout" | "contexts":
            from services.cli.access import login

            return login.run(environ, given)
        case "events":
            from services.cli import events

            return events.run(environ, given)
        case "conformance":
            from services.cli.conformance import command

            return command.run(
                environ,
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

            return demo.run(environ)


def _workflows(given: argparse.Namespace, environ: Mapping[str, str]) -> Coroutine[Any, Any, int]:
    match given.verb:
        case "check":
            from services.cli.check import command as check

            return check.run(
                environ,
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

            return workflow_list.run(environ, given)
        case "declare":
            from services.cli import workflow_declare

            return workflow_declare.run(environ, given)
        case "logs":
            from services.cli import workflow_logs

            return workflow_logs.run(environ, given)
        case "pause" | "resume":
            from services.cli import workflow_pause

            return workflow_pause.run(environ, given)
        case _:
            from services.cli import workflows

            return workflows.sync(
                environ, project=given.project, tenant=given.tenant, file=given.file, as_json=given.json
            )


if __name__ == "__main__":
    raise SystemExit(main())
