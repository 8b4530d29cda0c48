"""Time zones of schedules, which the engine judges by a list of its own: what this machine can say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


def zone_doubts(definition: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each zone of a definition that this machine does not know, where it knows any."""
    for index, trigger in enumerate(definition.get("triggers", ())):
        zone = trigger.get("timezone")
        if zone is not None and not _is_known(zone) and _is_known("UTC"):
            yield (
                f"triggers[{index}].timezone: this machine knows no {zone!r}; if the engine does not either, it will"
                " refuse the definitions (zones are IANA names, exactly spelled, such as Europe/Istanbul)"
            )


def _is_known(zone: str) -> bool:
    # Most programs have no schedules, and start sooner without it.
    zones = import_module("zoneinfo")
    try:
        zones.ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        return False
    return True
