"""A workflow as callers see it: its definition, and the state it is in; and one that was archived just now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRecord:
    """`definition` is canonical JSON text, `version` its hash, `project` a slug; times are unix milliseconds.

    `source` says who declared the project's list last: api, sync, file, worker; "" when nobody has. `archived_ms` is
    None while the workflow is declared.
    """

    name: str
    project: str
    definition: str
    version: str
    is_active: bool
    archived_ms: int | None
    source: str
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A workflow that a new list has archived, and how many of its runs are active: `at_least` so many where counting
    was given up, None where it took too long.
    """

    name: str
    active_runs: int | None
    at_least: bool = False
