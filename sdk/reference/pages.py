"""The names and texts of the pages."""

from __future__ import annotations

from pathlib import Path

from sdk.reference.python_page import python_page
from sdk.reference.typescript_page import typescript_page

ROOT = Path(__file__).resolve().parents[2]


def pages() -> dict[str, str]:
    """Path in the repository → text."""
    return {
        "docs/reference/python.md": python_page(),
        "docs/reference/typescript.md": typescript_page(ROOT / "sdk" / "node" / "src"),
    }
