"""The rules of `runr conformance` and the page that tells of them; what the command says when it is used wrongly."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from services.cli.conformance import command, workflows
from services.cli.conformance.report import line, summary
from services.cli.conformance.rule import Finding, Rule
from services.cli.conformance.table import RULES
from services.cli.failure import Failure
from tests.support.bare_function import bare, serving
from tests.support.pages import page

PAGE = "docs/how-to/conformance.md"
FAMILIES = re.compile(r"^\| ((?:`[a-z-]+-…`(?:, )?)+) \| .* \| ([\d, ]+) \|$", re.MULTILINE)


def families() -> dict[str, set[int]]:
    """Beginnings of names → the sections that the page gives them."""
    found = {}
    for names, sections in FAMILIES.findall(page(PAGE).text):
        for name in re.findall(r"`([a-z-]+-)…`", names):
            found[name] = {int(section) for section in sections.split(",")}
    return found


def test_names_are_unique_and_sections_exist() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    sections = [int(number) for number in re.findall(r"^## (\d+)\. ", page("docs/protocol.md").text, re.MULTILINE)]
    assert {rule.section for rule in RULES} <= set(sections)


def test_the_page_tells_of_every_rule_with_its_section() -> None:
    told = families()
    assert len(told) > 15
    for rule in RULES:
        fitting = [sections for beginning, sections in told.items() if rule.name.startswith(beginning)]
        assert any(rule.section in sections for sections in fitting), rule.name
    assert [each for each in told if not any(rule.name.startswith(each) for rule in RULES)] == []


def test_the_page_tells_of_every_workflow() -> None:
    assert set(re.findall(r"^\| `(conformance-\w+)` \|", page(PAGE).text, re.MULTILINE)) == set(workflows.ALL)
    assert {rule.workflow for rule in RULES if rule.workflow} == set(workflows.ALL)


def test_a_report_has_a_line_a_rule_and_three_more_under_one_that_has_failed() -> None:
    async def check(_: Any) -> None:
        raise AssertionError

    rule = Rule("step-id-repeats", 7, check)
    assert line(Finding(rule, "ok")) == "ok     step-id-repeats                  protocol section 7"
    failed = Finding(rule, "failed", "", "this", "that", "something else")
    assert line(failed).splitlines() == [
        "FAILED step-id-repeats                  protocol section 7",
        "         sent      this",
        "         expected  that",
        "         came      something else",
    ]
    assert summary([Finding(rule, "ok"), failed], 7) == "1 ok, 1 failed, 0 not applicable, 7 requests"


def test_what_does_not_apply_is_told_once_for_each_reason() -> None:
    served, listed = RULES[-1], RULES[0]
    findings = [
        Finding(served, "not applicable", "it is not served"),
        Finding(listed, "not applicable", "it is not listed"),
        *[Finding(served, "not applicable", "it is not served")] * 9,
    ]
    said = summary(findings, 7).splitlines()
    assert said[0] == "-      not applicable, since it is not served:"
    assert " ".join(said[1:-3]).replace(",", "").split() == [served.name] * 10
    assert said[-3:] == [
        "-      not applicable, since it is not listed:",
        f"         {listed.name}",
        "0 ok, 0 failed, 11 not applicable, 7 requests",
    ]
    assert max(map(len, said)) <= 118


async def test_a_key_that_the_function_has_not_stops_it_at_once() -> None:
    with serving(bare.Function) as url:
        ways: list[dict[str, Any]] = [{}, {"json_output": True}, {"only": ["step-"]}]
        for options in ways:
            failure = await told({}, url=url, key="another key", **options)
            first, sent, came = str(failure).splitlines()
            assert first.startswith(f"{url} refuses a request that is signed with this key: is --key the key of this")
            assert sent.startswith("  sent  an introspect request: {")
            assert came.startswith("  came  HTTP 401 ")
            assert failure.code == 1


async def told(environ: dict[str, str], **options: Any) -> Failure:
    """What the command says instead of a report."""
    given: dict[str, Any] = {
        "url": "http://127.0.0.1:1/",
        "key": None,
        "fallback_key": None,
        "only": [],
        "complete": False,
        "timeout_s": 5.0,
        "limit_s": 5.0,
        "json_output": False,
    }
    with pytest.raises(Failure) as failure:
        await command.run(environ, **{**given, **options})
    return failure.value


async def test_wrong_usage_is_told_before_anything_is_sent() -> None:
    key = {"RUNR_WORKFLOW_SIGNING_KEY": "k"}
    assert "no signing key: set RUNR_WORKFLOW_SIGNING_KEY" in str(await told({}))
    assert "127.0.0.1:8000: not a URL" in str(await told(key, url="127.0.0.1:8000"))
    assert "--only sig-: no rule has a name that begins so" in str(await told(key, only=["sig-"]))
    assert "WORKFLOWS_VERIFY_TLS" in str(await told({**key, "WORKFLOWS_VERIFY_TLS": "perhaps"}))
    assert (await told({})).code == 2


async def test_a_server_that_is_not_there_is_told_with_its_url() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/"
    failure = await told({}, url=url, key="k")
    assert str(failure).startswith(f"{url}: no connection: ")
    assert failure.code == 1
