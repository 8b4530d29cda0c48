"""The documents say what the code does: names, numbers, paths, routes, commands and settings in them exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterable

import pytest

from services.cli import configuration_page, configuration_words
from services.cli.main import parser
from services.core.domain.workflow import NOT_YET
from services.core.runtime.config import declarations
from services.gateway.route import Route
from services.gateway.routes.table import ROUTES
from services.gateway.shape import read_query
from tests.support.pages import ROOT, Call, Page, calls, page, pages

ALL = [pytest.param(each, id=each.name) for each in pages()]
REPOSITORY_FOLDERS = ("services", "tests", "docs", "proto", "sdk", "deploy", "examples")

_variable = re.compile(r"\b(?:RUNR|WORKFLOWS|OTEL)_[A-Z][A-Z0-9_]*\b|\b(?:DATABASE|NATS)_URL\b")
_in_code = re.compile(rf"""["']({_variable.pattern})["']""")


def sources(*folders: str) -> Iterable[str]:
    """The text of all our Python modules below some folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.read_text(encoding="utf-8")


def test_the_configuration_page_is_that_of_the_code() -> None:
    written = page("docs/configuration.md").text
    assert written == configuration_page.page(), "print it again: python -m services.cli.configuration_page"


def test_every_setting_has_a_place_and_a_meaning() -> None:
    declared = configuration_page.declared()
    assert set(configuration_words.MEANINGS) == set(declared)
    assert {row.group.__name__ for row in declared.values()} == set(configuration_words.TITLES)


def test_every_variable_in_the_code_is_on_the_page() -> None:
    named = set(_in_code.findall("\n".join(sources("services", "sdk/python/src"))))
    # Between a supervisor and its children.
    told_by_supervisors = {
        "RUNR_PARENT_PIPE",
        "RUNR_PROCESS_SLOT",
        "RUNR_HEALTH_SOCKET",
        "RUNR_PROCESS",
        "RUNR_REPLACES",
    }
    no_setting = {*told_by_supervisors, "WORKFLOWS_DECLARED"}
    assert named - no_setting - set(_variable.findall(page("docs/configuration.md").text)) == set()


def test_a_setting_is_said_to_have_no_effect_if_and_only_if_nothing_uses_it() -> None:
    code = "\n".join(sources("services"))
    rows = configuration_page.declared().values()
    unused = {row.variable for row in rows if not re.search(rf"\.{row.field}\b", code)}
    assert unused == configuration_words.WITHOUT_EFFECT


def test_defaults_on_the_page_are_what_the_parsers_make_of_them() -> None:
    shown = {
        match[1]: match[2]
        for match in re.finditer(
            r"^\| `(\w+)` \| `([^`]*)` \|(?:[^|]*\|){3}$", page("docs/configuration.md").text, re.MULTILINE
        )
    }
    rows = {row.variable: row for cls in configuration_page.classes() for row in declarations(cls)}
    assert len(shown) > 30
    assert {name: rows[name].parse(text) for name, text in shown.items()} == {n: rows[n].default for n in shown}


@pytest.mark.parametrize("each", ALL)
def test_variables_that_pages_name_exist(each: Page) -> None:
    known = set(_variable.findall(page("docs/configuration.md").text)) | {
        "RUNR_WORKFLOW_PROTOCOL",
        "RUNR_READY",
        "RUNR_DEAD",
    }
    # OTEL_* that are not ours are the OpenTelemetry SDK's own.
    named = {name for name in _variable.findall(each.text) if not name.endswith("_") and not name.startswith("OTEL_")}
    assert named - known == set()


@pytest.mark.parametrize("each", ALL)
def test_links_lead_somewhere(each: Page) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", each.prose)
    lost = [
        link
        for link in links
        if not link.startswith(("http://", "https://")) and not (each.path.parent / link.partition("#")[0]).exists()
    ]
    assert lost == []


@pytest.mark.parametrize("each", ALL)
def test_paths_that_pages_name_exist(each: Page) -> None:
    named = re.findall(rf"`((?:{'|'.join(REPOSITORY_FOLDERS)})/[\w./-]+)`", each.prose)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("each", ALL)
def test_json_is_json(each: Page) -> None:
    for block in each.blocks("json"):
        json.loads(block)


@pytest.mark.parametrize("each", ALL)
def test_shell_blocks_are_shell(each: Page) -> None:
    for block in each.blocks("sh"):
        checked = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("each", ALL)
def test_calls_of_the_api_are_understood(each: Page) -> None:
    found = [call for block in each.blocks("sh") for call in calls(block)]
    assert len(found) == sum(block.count("curl ") for block in each.blocks("sh"))
    for call in found:
        understand(call)


def understand(call: Call) -> None:
    """Find the route of a call and read its query and body, as the gateway does. Raises when it would be refused."""
    path, _, query = call.path.partition("?")
    fitting = [route for route in ROUTES if route.method == call.method and _fits(route, path)]
    assert fitting, f"no route {call.method} {path}"
    pairs = dict(pair.split("=") for pair in query.split("&")) if query else {}
    read_query(fitting[0].query, _Query(pairs))
    body = (call.body or "").encode()
    if fitting[0].body is not None:
        fitting[0].body.read(body)
    elif body:
        json.loads(body)


class _Query(dict[str, str]):
    """A query of which each parameter is given once."""

    def getall(self, name: str) -> list[str]:
        return [self[name]]


def _fits(route: Route, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path) is not None


@pytest.mark.parametrize("each", ALL)
def test_commands_exist(each: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = "\n".join(each.blocks("sh"))
    made = re.findall(r"^\s*make ([a-z-]+)", shown, re.MULTILINE) + re.findall(r"`make ([a-z-]+)`", each.prose)
    assert set(made) - targets == set()
    for command in re.findall(r"^(?:\S*/)?runr (.*)$", shown, re.MULTILINE):
        parser().parse_args(shlex.split(command.rstrip(" &"), comments=True))


def test_what_is_not_there_is_what_the_page_says() -> None:
    text = page("docs/status.md").text
    options = re.search(r"\*\*Options of a definition\*\*[^:]*:\s(.*?)\.\n\n", text, re.DOTALL)
    assert options is not None
    assert set(re.findall(r"`([\w.]+)`", options[1])) == NOT_YET
    commands = re.search(r"\*\*Commands\*\*: there are (.*?)\. ", text)
    assert commands is not None
    actions = next(action for action in parser()._actions if action.dest == "command")
    assert set(re.findall(r"`(\w+)`", commands[1])) == set(actions.choices or ())


@pytest.mark.parametrize(
    ("name", "words", "sections"),
    [
        ("docs/engine.md", "engine", 13),
        ("docs/protocol.md", "protocol", 8),
        ("docs/architecture.md", "architecture", 7),
    ],
)
def test_sections_that_the_code_names_exist(name: str, words: str, sections: int) -> None:
    headings = [int(number) for number in re.findall(r"^## (\d+)\. ", page(name).text, re.MULTILINE)]
    assert headings == list(range(1, sections + 1))
    everything = "\n".join(sources("services", "tests", "sdk/python"))
    named = re.findall(rf"\b{words} sections? (\d+)(?: and (\d+))?", everything)
    assert {int(number) for pair in named for number in pair if number} <= set(headings)


def test_rulings_that_the_code_names_exist() -> None:
    defined = set(re.findall(r"^\| ([CPOS]\d+) \|", page("docs/rulings.md").text, re.MULTILINE))
    assert {
        f"{kind}{n}" for kind, last in zip("CPOS", (29, 12, 8, 10), strict=True) for n in range(1, last + 1)
    } == defined
    sql = "\n".join(path.read_text() for path in (ROOT / "services").rglob("*.sql"))
    named = re.findall(r"\brulings? ((?:[CPOS]\d+(?:, | and |–)?)+)", "\n".join(sources("services", "tests")) + sql)
    assert {ruling for names in named for ruling in re.findall(r"[CPOS]\d+", names)} <= defined


@pytest.mark.parametrize("each", ALL)
def test_pages_stand_alone(each: Page) -> None:
    assert re.findall(r"/work/|\.\./shared", each.text) == []
