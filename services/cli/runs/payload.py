"""Payloads on the command line: JSON that reaches the API as it was written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.cli.json_input import read_json


def read_payload(given: str, option: str) -> bytes:
    """What an option gives: JSON itself, `@FILE`, or `-` for stdin. Raises Failure for what is no JSON."""
    if given == "-":
        return read_json(sys.stdin.buffer.read, option)
    if given.startswith("@"):
        return read_json(Path(given[1:]).read_bytes, f"{option} {given}")
    return read_json(given.encode, option)


def body_with(data: bytes | None, members: Mapping[str, Any]) -> bytes:
    """A body with the members that are not None, and the JSON of `data` as it is."""
    rest = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    if data is None:
        return rest
    return b'{"data":' + data + (b"}" if rest == b"{}" else b"," + rest[1:])
