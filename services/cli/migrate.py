"""`runr migrate`: the schema of this version, in the database that DATABASE_URL names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from services.cli.failure import Failure
from services.core.runtime.config import ConfigError, load
from services.core.runtime.service import EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import DatabaseSettings
from services.core.store.connect_fault import CONNECT_FAULTS, connect_fault
from services.core.store.migrate import MigrationMismatch, migrate


async def run(environ: Mapping[str, str], *, as_json: bool = False) -> int:
    """Applies what is missing and lists it; safe to run twice and at once."""
    try:
        settings = load(DatabaseSettings, environ)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    try:
        applied = await migrate(settings.url)
    except CONNECT_FAULTS as error:
        raise Failure(connect_fault(error, settings.url)) from error
    except MigrationMismatch as error:
        raise Failure(f"{error}: this database belongs to another version of RunR") from error
    if as_json:
        sys.stdout.write(json.dumps({"applied": list(applied)}) + "\n")
        return EXIT_OK
    for name in applied:
        sys.stdout.write(f"applied {name}\n")
    sys.stdout.write("the schema is up to date\n")
    return EXIT_OK
