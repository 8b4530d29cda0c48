"""The manifests in `deploy/`: what they say agrees with the code, and no secret stands in them."""

from __future__ import annotations

import re

from services.core.runtime.config import declarations
from services.core.runtime.settings import FunctionSettings
from tests.support.pages import ROOT

FUNCTION = (ROOT / "deploy" / "knative" / "function.yaml").read_text()


def test_a_functions_signing_key_comes_from_its_secret() -> None:
    entry = re.search(r"- name: RUNR_WORKFLOW_SIGNING_KEY\n((?: {14}.*\n)+)", FUNCTION)
    assert entry is not None
    assert re.search(r"secretKeyRef: \{name: [a-z0-9-]+-secret-env, key: RUNR_WORKFLOW_SIGNING_KEY\}", entry[1])
    for path in (ROOT / "deploy").rglob("*.yaml"):
        assert not re.search(r"RUNR_WORKFLOW_SIGNING_KEY\n?\s*value:", path.read_text()), path


def test_a_function_is_told_the_protocol() -> None:
    assert re.search(r"- name: RUNR_WORKFLOW_PROTOCOL\n\s+value: v1\n", FUNCTION)


def test_a_platform_lets_a_request_last_as_long_as_the_engine_does() -> None:
    (timeout,) = [row for row in declarations(FunctionSettings) if row.variable == "WORKFLOWS_REQUEST_TIMEOUT"]
    given = re.search(r"timeoutSeconds: (\d+)", FUNCTION)
    assert given is not None
    assert timeout.default <= int(given[1])
