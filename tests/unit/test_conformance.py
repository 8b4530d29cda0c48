"""`docs/conformance.md` against the tests: every row has a verdict, every test that it names is there and runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.support.pages import ROOT, page
from tests.unit.test_cases import DATA, RULES

LATER = frozenset(("UI", "CLI", "REST access", "sessions and members"))
"""Parts of the product that this version does not have."""

PAGES = {"D": 200, "P": 60}
"""The original pages, and how many rows each has at least."""

_row = re.compile(r"^\| ([A-Z])-(\d+) \| (.*?) (?<!\\)\| (.*) \|$")
_test = re.compile(r"`((?:tests|sdk/python/tests)/[\w/]+\.py)::(?:(\w+)::)?(\w+)`")
_node_test = re.compile(r"`(sdk/node/tests/[\w-]+\.test\.ts)::([^`]+)`")


class Row(NamedTuple):
    """One row of the page."""

    page: str
    number: int
    sentence: str
    verdict: str


def rows(text: str) -> list[Row]:
    """The rows of all tables, in order."""
    found = [match for line in text.splitlines() if (match := _row.match(line))]
    return [Row(match[1], int(match[2]), match[3], match[4]) for match in found]


def faults(row: Row) -> Iterator[str]:
    """What is wrong with a verdict."""
    kind, _, rest = row.verdict.partition(": ")
    if kind == "later":
        if rest not in LATER:
            yield f"{rest!r} is no part that comes later"
    elif kind == "platform":
        if not re.fullmatch(r"not applicable: \S.{9,}", rest):
            yield "says no reason"
    else:
        named = row.verdict.split("<br>")
        if len(named) != len(set(named)):
            yield "names a test twice"
        for each in named:
            in_node = _node_test.fullmatch(each)
            if in_node is not None:
                if in_node[2] not in runnable_in_node(in_node[1]):
                    yield f"{each} is not there, or does not run"
                continue
            match = _test.fullmatch(each)
            if match is None:
                yield f"{each!r} is no test, no later part and no reason"
            elif (match[2], match[3]) not in runnable(match[1]):
                yield f"{each} is not there, or does not run"


@cache
def runnable(path: str) -> frozenset[tuple[str | None, str]]:
    """`(class, name)` of the tests in a file that are always run."""
    file = ROOT / path
    if not file.exists() or not file.name.startswith("test_"):
        return frozenset()
    return frozenset(_tests(ast.parse(file.read_text(encoding="utf-8")).body, None))


@cache
def runnable_in_node(path: str) -> frozenset[str]:
    """The names of the tests in a file of the TypeScript SDK that always run: with no option but a timeout."""
    file = ROOT / path
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return frozenset(
        re.findall(r"""^test\("([^"\n]+)", (?:\{ timeout: [\d_]+ \}, )?(?:async )?\(""", text, re.MULTILINE)
    )


def _tests(body: list[ast.stmt], inside: str | None) -> Iterator[tuple[str | None, str]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            if not any(re.search(r"\bmark\.(skip|xfail)\b", ast.unparse(each)) for each in node.decorator_list):
                yield inside, node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, node.name)


ROWS = rows(page("docs/conformance.md").text)


def test_rows_are_numbered_without_a_gap() -> None:
    for letter, least in PAGES.items():
        numbers = [row.number for row in ROWS if row.page == letter]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= least
    assert {row.page for row in ROWS} == set(PAGES)
    lines = [line for line in page("docs/conformance.md").text.splitlines() if line.startswith("| ")]
    headings = [line for line in lines if line.startswith(("| id |", "| --- |"))]
    assert len(lines) == len(headings) + len(ROWS), "a line of a table is no row"


def test_no_sentence_stands_there_twice() -> None:
    said = [(row.page, row.sentence) for row in ROWS if not row.sentence.startswith(("…", "1. …", "4. …"))]
    assert sorted({each for each in said if said.count(each) > 1}) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.page}-{row.number}")
def test_every_row_is_proved_or_says_why_not(row: Row) -> None:
    assert list(faults(row)) == []


@pytest.mark.parametrize(
    "verdict",
    [
        "",
        "of course",
        "later: some day",
        "later",
        "platform: not applicable",
        "platform: not applicable: no",
        "`tests/unit/test_conformance.py::test_that_is_not_there`",
        "`tests/unit/test_nowhere.py::test_rule`",
        "`tests/unit/test_cases.py::TestRules::test_rule`",
        "tests/unit/test_cases.py::test_rule",
        "`tests/unit/test_cases.py::test_rule`<br>`tests/unit/test_cases.py::test_rule`",
        "`tests/unit/test_cases.py::test_rule` and more",
        "`sdk/node/tests/vectors.test.ts::no such test`",
        "`sdk/node/tests/nowhere.test.ts::durations.json`",
    ],
)
def test_a_verdict_that_is_none_is_found(verdict: str) -> None:
    assert list(faults(Row("D", 1, "It works", verdict)))


def test_a_test_that_is_skipped_proves_nothing() -> None:
    skipped, failing = "@pytest.mark.skip\ndef test_a(): ...", "@pytest.mark.xfail(reason='')\nasync def test_b(): ..."
    code = f"{skipped}\n{failing}\ndef test_c(): ..."
    assert list(_tests(ast.parse(code).body, None)) == [(None, "test_c")]


def test_every_case_is_a_test_with_its_id_in_its_name() -> None:
    ids = [json.loads(line)["id"] for line in DATA.read_text().splitlines()]
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    names = {name for file in files for _, name in runnable(file)}
    stories = {id for id in ids if any(name.startswith(f"test_{id.replace('-', '_')}") for name in names)}
    assert set(RULES) <= set(ids)
    assert [id for id in ids if id not in stories and id not in RULES] == []
