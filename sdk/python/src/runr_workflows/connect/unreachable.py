"""What a worker says while it has no connection: which setting to look at, and nothing twice a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from .target import CA_VARIABLE, URL_VARIABLE, Target

_REMIND_S = 60.0
_MOST_REMEMBERED = 20
# How gRPC tells of a server of HTTP/1.
_NOT_GRPC = ("Failed parsing HTTP/2", "Trying to connect an http1.x server")
_IN_SHORT = (
    (("Connection refused",), "nothing listens there (connection refused)"),
    (("errors resolving", "DNS resolution failed", "Domain name not found"), "there is no host of that name"),
    (("Network is unreachable", "No route to host"), "there is no way to that address"),
    (("CERTIFICATE_VERIFY_FAILED",), f"its certificate is by no authority that this worker knows ({CA_VARIABLE})"),
    (("WRONG_VERSION_NUMBER",), "it does not speak TLS (on a network that is trusted: RUNR_WORKER_PLAINTEXT=true)"),
)

_log = logging.getLogger("runr_workflows")


class Unreachable:
    """Tells why there is no connection: what is new at once, what stays the same once a minute."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._target = target
        self._clock = clock
        self._told: dict[str, float] = {}
        """When each sentence was told last: where engines are replaced, two of them take turns."""

    def tell(self, lost: str, *, was_connected: bool) -> None:
        """A try has come to nothing. Who was connected before has the right address."""
        sentence = self._sentence(lost)
        if not self._is_due(sentence):
            return
        hint = "" if was_connected else f" Is {URL_VARIABLE} the address of an executor (`runr dev`: Workers)?"
        _log.warning("no connection to %s: %s.%s Trying again", self._target, sentence, hint)

    def refused(self, goodbye: str) -> None:
        """An engine has answered a try, and takes no worker for now."""
        if self._is_due(goodbye):
            _log.warning("the engine does not take the worker now: %s. Trying again", goodbye.rstrip("."))

    def over(self) -> None:
        """There is a connection."""
        self._told.clear()

    def _is_due(self, sentence: str) -> bool:
        now = self._clock()
        if now - self._told.get(sentence, -_REMIND_S) < _REMIND_S:
            return False
        if len(self._told) >= _MOST_REMEMBERED:
            self._told.clear()
        self._told[sentence] = now
        return True

    def _sentence(self, lost: str) -> str:
        if any(sign in lost for sign in _NOT_GRPC):
            return "what listens there does not speak gRPC, as the API does not"
        return next((short for signs, short in _IN_SHORT if any(sign in lost for sign in signs)), lost.rstrip("."))
