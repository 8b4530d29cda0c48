"""A peer that goes away in the middle of what it is sent is no fault of the server, though gRPC logs it as one."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_GRPC = "grpc._cython.cygrpc"
_BROKEN = "ExecuteBatchError"


class _BrokenCalls(logging.Filter):
    """Takes gRPC's own errors about calls whose peer has gone, and notes them in one line for who looks closely."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        if kind is None or kind.__name__ != _BROKEN:
            return True
        log.debug("a peer has gone in the middle of an answer", extra={"call": record.getMessage()})
        return False


_FILTER = _BrokenCalls()


def quiet_broken_calls() -> None:
    """From now on such calls are no errors in this process's log. A second time does nothing."""
    logging.getLogger(_GRPC).addFilter(_FILTER)
