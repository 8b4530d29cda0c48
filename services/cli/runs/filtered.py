"""Which runs are meant: by their ids, or by a filter, which is that of the API's lists and of its bulk jobs."""

from __future__ import annotations

import argparse
from typing import Any

from services.cli.failure import Failure
from services.core.runtime.service import EXIT_USAGE

_QUERY = ("workflow", "from", "to", "q")


def query(given: argparse.Namespace) -> list[tuple[str, str]]:
    """The filter as query parameters of the list of runs."""
    one = [(name, value) for name in _QUERY if (value := getattr(given, f"filter_{name}")) is not None]
    return [*one, *(("status", each) for each in given.filter_status), *(("tag", each) for each in given.filter_tag)]


def bulk_filter(given: argparse.Namespace) -> dict[str, Any]:
    """The filter as the body of a bulk job has it; empty when none is given."""
    found: dict[str, Any] = {name: value for name in _QUERY if (value := getattr(given, f"filter_{name}")) is not None}
    if given.filter_status:
        found["status"] = given.filter_status
    if given.filter_tag:
        found["tags"] = given.filter_tag
    return found


def is_bulk(given: argparse.Namespace) -> bool:
    """Whether a filter says which runs are meant, rather than ids. Raises Failure for both, and for neither."""
    chosen = bulk_filter(given)
    if bool(chosen) == bool(given.run):
        which = "not both" if chosen else f"as `runr runs {given.verb} --status failed`"
        raise Failure(f"say which runs: ids, or a filter, {which}", EXIT_USAGE)
    if given.dry_run and not chosen:
        raise Failure("--dry-run is for a filter: it counts what that finds", EXIT_USAGE)
    return bool(chosen)
