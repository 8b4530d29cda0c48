"""What services tell Prometheus, as a test reads it: `/metrics` at the address of their health."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support.stack import Stack


class Samples:
    """All samples of one look at some processes."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._samples = [
            sample
            for text in texts.values()
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    @property
    def names(self) -> set[str]:
        """Of samples, so with `_total`, `_bucket` and the like."""
        return {sample.name for sample in self._samples}

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all samples of this name that have these labels; 0 without any."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and all(sample.labels.get(label) == value for label, value in labels.items())
        )

    def values(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {sample.labels[label] for sample in self._samples if sample.name == name and label in sample.labels}


async def scrape(stack: Stack) -> Samples:
    """One look at all processes of the stack."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:

        async def text(address: str) -> str:
            async with session.get(f"http://{address}/metrics") as answer:
                assert answer.status == 200
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return await answer.text()

        names = list(stack.children)
        texts = await asyncio.gather(*(text(stack.children[name].health) for name in names))
        return Samples(dict(zip(names, texts, strict=True)))
