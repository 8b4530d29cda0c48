"""What the conformance runner prints: a line a rule; under one that has failed what was sent, expected, and came."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from services.cli.conformance.rule import Finding

_NAME = 32
_WORDS = {"ok": "ok", "failed": "FAILED", "not applicable": "-"}


def line(finding: Finding) -> str:
    """A finding, in one line or, where the rule has failed, in four."""
    rule = finding.rule
    head = f"{_WORDS[finding.state]:<7}{rule.name:<{_NAME}} protocol section {rule.section}"
    if finding.state == "not applicable":
        return f"{head}  not applicable: {finding.reason}"
    if finding.state == "ok":
        return head
    said = (("sent", finding.sent), ("expected", finding.expected), ("came", finding.came))
    return "\n".join([head, *(f"         {word:<9} {text}" for word, text in said if text)])


def summary(findings: Sequence[Finding], requests: int) -> str:
    """The last line."""
    counts = Counter(finding.state for finding in findings)
    return (
        f"{counts['ok']} ok, {counts['failed']} failed, {counts['not applicable']} not applicable, {requests} requests"
    )


def as_json(url: str, findings: Sequence[Finding], requests: int) -> str:
    """All of it for programs."""
    rules = [
        {
            "name": finding.rule.name,
            "section": finding.rule.section,
            "state": finding.state,
            "reason": finding.reason or None,
            "sent": finding.sent or None,
            "expected": finding.expected or None,
            "came": finding.came or None,
        }
        for finding in findings
    ]
    return json.dumps({"url": url, "requests": requests, "rules": rules})
