"""What the conformance runner prints: a line a rule; under one that has failed what was sent, expected, and came.

Rules that do not apply are told at the end, together with those that do not for the same reason.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence

from services.cli.conformance.rule import Finding

_NAME = 32
_WIDTH = 118
_WORDS = {"ok": "ok", "failed": "FAILED", "not applicable": "-"}


def line(finding: Finding) -> str:
    """A finding of a rule that applies, in one line or, where the rule has failed, in four."""
    rule = finding.rule
    head = f"{_WORDS[finding.state]:<7}{rule.name:<{_NAME}} protocol section {rule.section}"
    if finding.state == "ok":
        return head
    said = (("sent", finding.sent), ("expected", finding.expected), ("came", finding.came))
    return "\n".join([head, *(f"         {word:<9} {text}" for word, text in said if text)])


def summary(findings: Sequence[Finding], requests: int) -> str:
    """The last lines: what does not apply, by its reason, and how many findings there are of each kind."""
    names: dict[str, list[str]] = {}
    for finding in findings:
        if finding.state == "not applicable":
            names.setdefault(finding.reason, []).append(finding.rule.name)
    counts = Counter(finding.state for finding in findings)
    lines = [f"-      not applicable, since {reason}:\n{_wrapped(rules)}" for reason, rules in names.items()]
    lines.append(
        f"{counts['ok']} ok, {counts['failed']} failed, {counts['not applicable']} not applicable, {requests} requests"
    )
    return "\n".join(lines)


def _wrapped(names: Sequence[str]) -> str:
    indent = " " * 9
    return textwrap.fill(
        ", ".join(names), _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
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
