"""The reference pages of the SDKs are those of the code."""

from __future__ import annotations

import re

import pytest
import runr_workflows
from runr_workflows import client, testing

from sdk.reference.pages import pages
from tests.support.pages import page

MADE = pages()


@pytest.mark.parametrize("name", MADE)
def test_the_page_is_that_of_the_code(name: str) -> None:
    assert page(name).text == MADE[name], "make it again: make reference"


def test_everything_that_is_exported_from_python_is_told() -> None:
    told = re.findall(r"^### (\w+)$", MADE["docs/reference/python.md"], re.MULTILINE)
    assert sorted(told) == sorted([*runr_workflows.__all__, *client.__all__, *testing.__all__])


def test_options_that_a_signature_unpacks_are_told_beside_it() -> None:
    modules = re.split(r"^## ", MADE["docs/reference/python.md"], flags=re.MULTILINE)
    unpacked = [
        (re.findall(r"Unpack\[(\w+)\]", text), re.findall(r"^### (\w+)$", text, re.MULTILINE)) for text in modules
    ]
    assert sum(len(names) for names, _ in unpacked) > 0
    assert all(set(names) <= set(told) for names, told in unpacked)


def test_everything_that_a_user_calls_has_words() -> None:
    silent = re.findall(
        r"^#### (\w+\.\w+)\n\n```py\n[^`]*```\n(?=\n*#|\Z)", MADE["docs/reference/python.md"], re.MULTILINE
    )
    assert silent == []


@pytest.mark.parametrize("member", ["waitForEvent<", "serve(", "fetchHandler", "result(", "everyCrash<"])
def test_members_of_typescript_are_told(member: str) -> None:
    assert member in MADE["docs/reference/typescript.md"]


def test_bodies_and_private_members_are_not_told() -> None:
    code = "\n".join(page("docs/reference/typescript.md").blocks("typescript"))
    assert re.findall(r"^\s+(?:private|return|#|if \().*$", code, re.MULTILINE) == []
