"""Signing keys as they are configured: the protocol takes any text as one, and most texts are a mistake.

No message shows a key, or a part of one.
"""

from __future__ import annotations

import logging
import os
import re

from .errors import SettingsError

KEY_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY"
FALLBACK_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK"

_KEY = re.compile(r"wfsk_[A-Za-z0-9_-]{43,}", re.ASCII)
"""As the engine makes them."""
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)

_log = logging.getLogger("runr_workflows")


class SigningKeys:
    """The keys of a project, the current one first, asked on each request and never at import: empty where unset.

    Warns, once of each, of what looks like no key at all.
    """

    def __init__(self, key: str | None, fallback: str | None) -> None:
        """None is what the environment says. Raises SettingsError for what can be no key."""
        check_key("signing_key", key)
        check_key("signing_key_fallback", fallback)
        self._given = ((key, "signing_key", KEY_VARIABLE), (fallback, "signing_key_fallback", FALLBACK_VARIABLE))
        self._judged: list[str] = ["", ""]

    def __call__(self) -> list[str]:
        """The keys of now."""
        keys = [os.environ.get(variable, "") if key is None else key for key, _, variable in self._given]
        if keys != self._judged:
            self._judged = keys
            for (given, argument, variable), key in zip(self._given, keys, strict=True):
                doubt = key_doubt(key)
                if doubt is not None:
                    _log.warning("%s %s", variable if given is None else argument, doubt)
        return keys


def check_key(name: str, key: object) -> None:
    """Raises SettingsError for what cannot be a key at all; None is one that comes from the environment."""
    if key is None:
        return
    if not isinstance(key, str):
        raise SettingsError(f"{name}: a text (str), or None for the variable, not {type(key).__name__}")
    try:
        key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SettingsError(f"{name}: it is not valid Unicode, so no request can be signed with it") from None


def key_doubt(key: str) -> str | None:
    """What to say of a key that looks like none an engine has made, behind its name; None of any other, and of none."""
    fault = _fault(key) if key else None
    if fault is None:
        return None
    return (
        f"does not look like a signing key of an engine: {fault} (they are wfsk_ and at least 43 of A–Z a–z 0–9 _ -)."
        " Every request is refused unless the engine signs with exactly this text"
    )


def _fault(key: str) -> str | None:
    """What is odd about a key, if anything is."""
    if _KEY.fullmatch(key):
        return None
    if key != key.strip():
        return "it has blanks or a line break around it"
    if len(key) > 1 and key[0] == key[-1] and key[0] in "\"'":
        return "it is in quotes"
    if not key.startswith("wfsk_"):
        return "it does not begin with wfsk_"
    if _CHARACTERS.fullmatch(key):
        return f"it has only {len(key)} characters, so a part may be missing"
    return "it holds other characters"
