"""JSON that a command is given: read as it is, once it is known to be JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from services.cli.failure import Failure
from services.core.runtime.service import EXIT_USAGE


def read_json(read: Callable[[], bytes], name: str) -> bytes:
    """What `read` gives. Raises Failure, beginning with the name of where it comes from, for what cannot be read or is
    no JSON.
    """
    try:
        text = read()
        json.loads(text)
    except OSError as error:
        raise Failure(f"{name}: {error.strerror or type(error).__name__}", EXIT_USAGE) from None
    except RecursionError:
        raise Failure(f"{name}: nested too deeply", EXIT_USAGE) from None
    except ValueError as error:
        raise Failure(f"{name}: not JSON: {error}", EXIT_USAGE) from None
    return text
