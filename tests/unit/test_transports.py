"""The table of `tests/README.md` against the stories: which are told over one transport alone, and why."""

from __future__ import annotations

import ast
import re

from tests.support.pages import ROOT, page

TABLE = page("tests/README.md").text.partition("### Two transports")[2].partition("\n\nThe stories")[0]


def reasons(source: str) -> set[str]:
    """What `only_over` is given as its reason, everywhere in a module."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [call.keywords for call in calls if getattr(call.func, "id", "") == "only_over"]
    named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    said = [each.value for keywords in given for each in keywords if each.arg == "because"]
    return {ast.literal_eval(named.get(ast.unparse(value), value)) for value in said}


def rows() -> dict[str, str]:
    """Story → what its row says."""
    found = re.findall(r"^\| (`.*?) \| (.*) \|$", TABLE, re.MULTILINE)
    return {story: said for stories, said in found for story in re.findall(r"`(\w+)`", stories)}


def test_the_table_tells_of_every_story_and_each_reason() -> None:
    said = rows()
    sources = {path.stem.removeprefix("test_"): path.read_text() for path in ROOT.glob("tests/e2e/test_*.py")}
    assert said.keys() == sources.keys()
    for story, source in sources.items():
        for reason in reasons(source):
            assert reason in said[story], (story, reason)
        if not reasons(source):
            assert said[story] == ("both" if "rest: Rest" in source else "neither: no client of a story"), story
