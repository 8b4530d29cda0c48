"""`runr conformance URL`: holds a function against every rule of the protocol page and prints a report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from services.cli.conformance.probe import Probe
from services.cli.conformance.report import as_json, line, summary
from services.cli.conformance.rule import Broken, Finding, KeyRefused, Rule
from services.cli.conformance.runner import Runner
from services.cli.conformance.table import RULES
from services.cli.conformance.wire import Place
from services.cli.failure import Failure
from services.cli.http_url import is_http_url
from services.core.runtime.config import ConfigError, load
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import FunctionSettings

KEY_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY"
FALLBACK_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK"


async def run(
    environ: Mapping[str, str],
    *,
    url: str,
    key: str | None,
    fallback_key: str | None,
    only: Sequence[str],
    complete: bool,
    timeout_s: float,
    limit_s: float,
    json_output: bool,
) -> int:
    """Prints the report; 1 when a rule has failed, or, if it must be `complete`, does not apply."""
    if not is_http_url(url):
        raise Failure(f"{url}: not a URL; write it with its scheme, as http://127.0.0.1:8000", EXIT_USAGE)
    keys = [key or environ.get(KEY_VARIABLE, ""), fallback_key or environ.get(FALLBACK_VARIABLE, "")]
    if not keys[0]:
        raise Failure(f"no signing key: set {KEY_VARIABLE} to the one that the function has, or give --key", EXIT_USAGE)
    place = Place.of(url, verify_tls=verifies_tls(environ))
    probe = Probe(place, [each for each in keys if each], timeout_s=timeout_s)

    def tell(finding: Finding) -> None:
        if not json_output and finding.state != "not applicable":
            sys.stdout.write(line(finding) + "\n")
            sys.stdout.flush()

    try:
        findings = await Runner(probe, _chosen(only), limit_s=limit_s).check(tell)
    except Broken as broken:
        raise Failure(f"{url}: {broken.came}") from None
    except KeyRefused as refused:
        raise Failure(
            f"{url} refuses a request that is signed with this key: is --key the key of this function?"
            f" Or does another program answer on this port?\n  sent  {refused.sent}\n  came  {refused.came}"
        ) from None
    sys.stdout.write((as_json(url, findings, probe.asked) if json_output else summary(findings, probe.asked)) + "\n")
    bad = {"failed", "not applicable"} if complete else {"failed"}
    return EXIT_FAILED if any(finding.state in bad for finding in findings) else EXIT_OK


def verifies_tls(environ: Mapping[str, str]) -> bool:
    """Whether certificates are verified (WORKFLOWS_VERIFY_TLS). Raises Failure."""
    try:
        return load(FunctionSettings, environ).verify_tls
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None


def _chosen(only: Sequence[str]) -> list[Rule]:
    """The rules whose names begin with one of `only`; all without any. Raises Failure for one that none has."""
    for prefix in only:
        if not any(rule.name.startswith(prefix) for rule in RULES):
            raise Failure(f"--only {prefix}: no rule has a name that begins so", EXIT_USAGE)
    return [rule for rule in RULES if not only or rule.name.startswith(tuple(only))]
