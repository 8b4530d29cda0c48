"""How messages show a value that they did not expect: short, on one line, whatever it is."""

from __future__ import annotations

import re

_SECRET = re.compile(r"^(\w+://)?.*@", re.DOTALL)


def shown(value: object, most: int = 50) -> str:
    """Its `repr`, cut. Never raises."""
    try:
        # Of a long text only what is shown is made.
        text = repr(value[: most + 1] if isinstance(value, str) else value)
    except Exception:  # a `repr` of somebody's own, or an integer with more digits than Python shows
        text = f"a value of the type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"


def shown_url(value: object) -> str:
    """A URL without the password that somebody may have put into it."""
    return shown(_SECRET.sub(r"\1…@", value) if isinstance(value, str) else value, 200)


def faulty(value: object, fault: str) -> str:
    """A fault that names the value too."""
    if fault.startswith(("'", '"')):
        return fault
    return f"{fault} ({shown(value)})" if ", " in fault else f"{fault}, not {shown(value)}"
