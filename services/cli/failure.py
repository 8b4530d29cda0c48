"""How a command gives up: a text for people and an exit code."""

from __future__ import annotations

from services.core.runtime.service import EXIT_FAILED


class Failure(Exception):
    """The command failed; the text is all that the user sees."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code
