"""The Python of the documents runs: every block is executed, every workflow in them is driven through the SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
import runr_workflows
from runr_workflows import Workflows
from runr_workflows.endpoint import Endpoint

from sdk.python.tests.engine import EVENT, KEY, NOW, FakeEngine
from services.core.engine.declare import check_text
from tests.support.page_stories import ENCRYPTED, STORIES, Story
from tests.support.pages import Page, page, pages

WITH_CODE = [
    each for each in pages() if each.blocks("python") and each.name.startswith(("docs/", "README.md", "sdk/python/"))
]


class ExampleWorkflows(Workflows):
    """The registry of an example, which a test can sign requests for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"signing_key": KEY, "clock": lambda: NOW, **options})


class ExampleEngine(FakeEngine):
    """Runs a workflow for an event with some data."""

    def __init__(self, wf: Workflows, story: Story) -> None:
        super().__init__(wf.handle_request, retries=story.retries, answers=story.answers)
        self._data = story.data

    def answer(self, workflow: str, steps: Mapping[str, Any] | None = None, **fields: Any) -> list[dict[str, Any]]:
        """The ops of one invocation."""
        return super().answer(workflow, steps, event={**EVENT, "data": self._data}, **fields)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples import: the SDK, with a key and a clock that the test knows."""
    monkeypatch.setattr(runr_workflows, "Workflows", ExampleWorkflows)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.support.django_settings")


def execute(each: Page) -> tuple[dict[str, Any], list[Workflows]]:
    """Execute the blocks of a page as one module; its names and the registries that they made."""
    module = ModuleType("example")
    made: list[Workflows] = []
    for number, block in enumerate(each.blocks("python"), 1):
        exec(compile(block, f"{each.name} block {number}", "exec"), module.__dict__)
        registry = module.__dict__.get("wf")
        if isinstance(registry, Workflows) and registry not in made:
            made.append(registry)
    return module.__dict__, made


@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in WITH_CODE])
@pytest.mark.usefixtures("example")
def test_definitions_of_examples_are_accepted(each: Page) -> None:
    _, registries = execute(each)
    for registry in registries:
        introspected = FakeEngine(registry.handle_request).introspect()["workflows"]
        checked = check_text(json.dumps(introspected), strict_unknown=True)
        assert [definition.name for definition in checked.definitions] == [each["name"] for each in introspected]
        assert checked.warnings == ()
        registry.close()


@pytest.mark.parametrize("story", [pytest.param(each, id=f"{each.page} {each.workflow}") for each in STORIES])
@pytest.mark.usefixtures("example")
def test_examples_do_what_they_say(story: Story) -> None:
    _, registries = execute(page(story.page))
    registry = next(each for each in registries if any(d["name"] == story.workflow for d in each.definitions))
    run = ExampleEngine(registry, story).run(story.workflow)
    assert run.status == story.status, run.error
    if story.output is ENCRYPTED:
        assert list(run.output) == ["encrypted"]
        assert registry.endpoint(Endpoint).decoded(run.output) == "ADA"
    else:
        assert run.output == story.output
    if story.steps is not None:
        assert tuple(run.kinds) == story.steps
    registry.close()


@pytest.mark.usefixtures("example")
def test_the_tests_of_the_page_about_testing_pass() -> None:
    names, _ = execute(page("docs/how-to/testing.md"))
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 10
    for test in tests:
        test()


def test_every_page_with_a_workflow_is_told_as_a_story() -> None:
    with_workflows = {each.name for each in WITH_CODE if any(".workflow(" in block for block in each.blocks("python"))}
    on_the_engine = {name for name in with_workflows if name.startswith(("docs/patterns/", "docs/migrate/"))}
    assert {story.page for story in STORIES} | on_the_engine == with_workflows
