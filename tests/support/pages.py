"""The documents of the repository, taken apart for tests: pages, fenced blocks, and the calls in shell blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SUBSTITUTED = re.compile(r'"\$\((curl .*?")\)"$', re.MULTILINE | re.DOTALL)
_PAGES = ("*.md", "docs/**/*.md", "services/README.md", "deploy/README.md", "proto/README.md", "sdk/**/README.md")


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """It without its fenced blocks."""
        return _BLOCK.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks of a language, in order."""
        return [match["text"] for match in _BLOCK.finditer(self.text) if match["language"] == language]


def pages() -> list[Page]:
    """All pages."""
    found = {path for pattern in (*_PAGES, "examples/**/README.md") for path in ROOT.glob(pattern)}
    return [Page(path) for path in sorted(found) if not {".venv", "node_modules"} & set(path.parts)]


def page(name: str) -> Page:
    """One page by its path."""
    return Page(ROOT / name)


@dataclass(frozen=True)
class Call:
    """A curl call of the API: `path` is below /api, with its query; `body` is what -d gives, None without."""

    method: str
    path: str
    body: str | None


def calls(block: str) -> Iterator[Call]:
    """The calls of the API in a shell block."""
    words = shlex.split(_SUBSTITUTED.sub(r" \1", block), comments=True)
    starts = [place for place, word in enumerate(words) if word == "curl"]
    for start, end in pairwise([*starts, len(words)]):
        yield _call(words[start:end])


def _call(words: list[str]) -> Call:
    body = words[words.index("-d") + 1] if "-d" in words else None
    method = words[words.index("-X") + 1] if "-X" in words else "GET" if body is None else "POST"
    url = next(word for word in words if word.startswith("$API"))
    return Call(method, url.removeprefix("$API"), body)
