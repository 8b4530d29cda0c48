"""The `runr` command (engine section 12). Exit codes: 0 done, 1 failed, 2 wrong usage or settings."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from services.cli import demo, dev, doctor, migrate, processes, serve, workflows
from services.cli.failure import Failure
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, loop_factory


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = argparse.ArgumentParser(prog="runr", description="RunR workflows: a durable workflow engine.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    part = commands.add_parser("dev", help="everything on this machine: Postgres, NATS and the four services")
    part.add_argument("--port", type=int, help="port of the API (default: 8080, or a free one, remembered)")
    part.add_argument("--function", metavar="URL", help="register this function with the default project and sync it")

    part = commands.add_parser("serve", help="run one service, or all of them in one process")
    part.add_argument("service", choices=[*serve.SERVICES, "all"])
    part.add_argument(
        "--processes",
        type=int,
        choices=range(1, processes.MOST + 1),
        default=1,
        metavar="N",
        help="of the executor: so many processes of it, one for a core, which share its gRPC address (default: 1)",
    )

    commands.add_parser("migrate", help="bring the database at DATABASE_URL to this version's schema")
    commands.add_parser("doctor", help="check the database, NATS and the services")
    part = commands.add_parser("workflows", help="the workflows of a project")
    verbs = part.add_subparsers(dest="verb", required=True, metavar="VERB")
    part = verbs.add_parser("sync", help="ask the function for its workflows and declare them")
    part.add_argument("--project", metavar="SLUG", default="default", help="the project (default: default)")
    part.add_argument(
        "--file",
        nargs="?",
        const=workflows.DEFINITIONS_FILE,
        help=f"store this list first, which stands in where the function cannot be reached"
        f" (default: {workflows.DEFINITIONS_FILE})",
    )
    part.add_argument("--json", action="store_true", help="print the API's answer")

    commands.add_parser("demo", help="watch an order workflow survive a kill -9")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    grammar = parser()
    given = grammar.parse_args(argv)
    if given.command == "serve":
        if given.processes > 1 and given.service != processes.SERVICE:
            grammar.error(
                f"--processes is for `serve {processes.SERVICE}`: start {given.service} once for each replica"
            )
        return serve.serve(given.service, os.environ, processes=given.processes)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            if given.command == "dev":
                return runner.run(dev.run(os.environ, port=given.port, function=given.function))
            if given.command == "migrate":
                return runner.run(migrate.run(os.environ))
            if given.command == "doctor":
                return runner.run(doctor.run(os.environ))
            if given.command == "workflows":
                return runner.run(
                    workflows.sync(os.environ, project=given.project, file=given.file, as_json=given.json)
                )
            return runner.run(demo.run(os.environ))
    except Failure as failure:
        sys.stderr.write(f"runr {given.command}: {failure}\n")
        return failure.code
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_FAILED


if __name__ == "__main__":
    raise SystemExit(main())
