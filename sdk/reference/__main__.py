"""Writes the pages. A test compares them with the code, so they cannot say anything else."""

from __future__ import annotations

from sdk.reference.pages import ROOT, pages


def main() -> None:
    """Writes every page."""
    for name, text in pages().items():
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
