"""Payloads on the command line: JSON that reaches the API as it was written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.cli.failure import Failure
from services.core.runtime.service import EXIT_USAGE


def read_payload(given: str, option: str) -> bytes:
    """What an option gives: JSON itself, `@FILE`, or `-` for stdin. Raises Failure for what is no JSON."""
    try:
        if given == "-":
            text = sys.stdin.buffer.read()
        else:
            text = Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()
        json.loads(text)
    except OSError as error:
        raise Failure(f"{option} {given}: {error.strerror or type(error).__name__}", EXIT_USAGE) from None
    except RecursionError:
        raise Failure(f"{option}: nested too deeply", EXIT_USAGE) from None
    except ValueError as error:
        raise Failure(f"{option}: not JSON: {error}", EXIT_USAGE) from None
    return text


def body_with(data: bytes | None, members: Mapping[str, Any]) -> bytes:
    """A body with the members that are not None, and the JSON of `data` as it is."""
    rest = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    if data is None:
        return rest
    return b'{"data":' + data + (b"}" if rest == b"{}" else b"," + rest[1:])
