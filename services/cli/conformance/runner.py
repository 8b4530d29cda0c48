"""Holds all rules against one function, one after another, within a limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from services.cli.conformance.probe import Probe
from services.cli.conformance.rule import Broken, Finding, KeyRefused, NotApplicable, Rule
from services.cli.conformance.wire import NoAnswer, NotReachable
from services.core.domain.op import FunctionFault

Tell = Callable[[Finding], None]


class Runner:
    """Checks a function. `limit_s` bounds all rules together; what is left then has failed."""

    def __init__(self, probe: Probe, rules: Sequence[Rule], *, limit_s: float) -> None:
        self._probe = probe
        self._rules = rules
        self._limit_s = limit_s

    async def check(self, tell: Tell) -> list[Finding]:
        """The findings, each also told at once. Raises Broken where nothing can be reached, and KeyRefused."""
        ends_at = monotonic() + self._limit_s
        await self._look()
        findings = []
        for rule in self._rules:
            finding = await self._check(rule, ends_at - monotonic())
            findings.append(finding)
            tell(finding)
        return findings

    async def _look(self) -> None:
        """What the function lists. One that does not answer introspection breaks rules, but serves nothing."""
        probe = self._probe
        post = probe.signer().post("an introspect request", probe.introspect_text())
        try:
            introspection = await probe.accepted(post)
        except Broken as broken:
            if isinstance(broken.__cause__, NotReachable):
                raise
            if isinstance(broken.__cause__, FunctionFault) and broken.__cause__.name == "SignatureRejected":
                raise KeyRefused(broken.sent, broken.came) from None
            return
        names = [each.get("name") for each in introspection.workflows if isinstance(each, dict)]
        probe.served = frozenset(name for name in names if isinstance(name, str))
        probe.capabilities = introspection.capabilities

    async def _check(self, rule: Rule, left_s: float) -> Finding:
        if rule.workflow is not None and rule.workflow not in self._probe.served:
            return Finding(rule, "not applicable", f"{rule.workflow} is not served")
        if rule.capability is not None and rule.capability not in self._probe.capabilities:
            return Finding(rule, "not applicable", f"{rule.capability} is not among its capabilities")
        try:
            async with asyncio.timeout(left_s):
                await rule.check(self._probe)
        except NotApplicable as why:
            return Finding(rule, "not applicable", str(why))
        except Broken as broken:
            return Finding(rule, "failed", "", broken.sent, broken.expected, broken.came)
        except (NoAnswer, FunctionFault) as error:
            return Finding(rule, "failed", "", "", "an answer", str(error))
        except TimeoutError:
            return Finding(rule, "failed", "", "", f"an end of all rules within {self._limit_s:g} s", "none")
        return Finding(rule, "ok")
