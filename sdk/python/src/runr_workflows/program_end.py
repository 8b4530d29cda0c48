"""Errors that end a program with one line: what `wf.serve()` and `wf.connect()` raise for the person who starts it.

Each is the error that is documented, for code that catches it, and a SystemExit, which Python shows without a traceback
where nobody does: a wrong setting has no place in the code.
"""

from __future__ import annotations

import threading

from .errors import ConnectError, SettingsError


class SettingsEnd(SettingsError, SystemExit):
    """A setting that is missing or wrong ends the program."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message


class ConnectEnd(ConnectError, SystemExit):
    """The engine's refusal ends the program."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.code = message


def ending(error: SettingsError | ConnectError) -> SettingsError | ConnectError:
    """The error to raise out of a call that is the program. Outside of the main thread, where a SystemExit is silent,
    the error itself, without the frames of a loop.
    """
    if threading.current_thread() is not threading.main_thread():
        return error.with_traceback(None)
    if isinstance(error, ConnectError):
        return ConnectEnd(str(error), error.reason)
    return SettingsEnd(str(error))
