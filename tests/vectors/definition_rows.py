"""`definitions.json`: what a project may declare, and where the faults of what it may not are (engine section 1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from runr_workflows import DefinitionError, Workflows

from services.core.domain.errors import InvalidInput
from services.core.domain.workflow import validate_definitions
from tests.vectors.check import Check, expect


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine and the Python SDK."""
    for row in document["definitions"]:
        yield Check(row["id"], partial(_check, row, engine_faults))
        yield Check(f"{row['id']} [sdk python]", partial(_check, row, sdk_faults))


def engine_faults(definition: dict[str, Any]) -> list[str]:
    """The paths of the faults that the engine finds in a definition, without that of the definition."""
    try:
        validate_definitions([definition], strict_unknown=True)
    except InvalidInput as refusal:
        return [error.path.removeprefix("workflows[0].") for error in refusal.errors]
    return []


def sdk_faults(definition: dict[str, Any]) -> list[str]:
    """The same of the SDK, whose decorator takes the name before the options."""
    options = dict(definition)
    name = options.pop("name", None)
    workflows = Workflows(signing_key="", signing_key_fallback="")
    try:
        workflows.workflow(name, **options)(lambda ctx, step: None)
    except DefinitionError as refusal:
        return [fault.partition(":")[0] for fault in refusal.faults]
    return []


def _check(row: Any, faults: Any) -> None:
    found = faults(row["definition"])
    expect(sorted(found), [] if row["expected"] == "ok" else sorted(row["expected"]))
