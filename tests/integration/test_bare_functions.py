"""The function servers without an SDK (examples/function-servers): `runr conformance` finds nothing wrong with them."""

from __future__ import annotations

import sys

from tests.support.bare_function import EXAMPLE
from tests.support.function_process import conformance, names, serving

CAPABILITIES = [
    "max-ops-several",
    "max-ops-at-most",
    "max-ops-budget",
    "max-ops-attempt",
    "dry-runs-nothing",
    "dry-kinds",
]


async def test_the_server_in_bare_python() -> None:
    # -S: without anything that is installed.
    async with serving([sys.executable, "-S", EXAMPLE, "0"]) as url:
        code, said = await conformance(url)
    assert [rule for rule in said["rules"] if rule["state"] == "failed"] == []
    assert (code, names(said, "not applicable")) == (0, ["steps-together", *CAPABILITIES])
