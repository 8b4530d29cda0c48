"""Envelopes that are damaged at random, always the same ones: each is judged as section 6 of the protocol judges it."""

from __future__ import annotations

import json
import random
import time

from services.cli.conformance.post import Post
from services.cli.conformance.probe import Probe
from services.cli.conformance.rule import Rule
from services.core.domain.signature import verify_envelope

_SEED = 7
_DAMAGED = 48
_INTERESTING = b'"\\{}[]:,0a\x00\x0b\x7f\x80\xc3\xff \n'


async def _mutated(probe: Probe) -> None:
    source = random.Random(_SEED)  # noqa: S311  # the same damage for every server
    for number in range(_DAMAGED):
        post = probe.signer().post(f"damaged envelope {number + 1}", probe.introspect_text())
        damaged = Post(post.about, post.headers, _damaged(source, post.body))
        status = _expected(damaged, probe)
        await (probe.accepted(damaged) if status == 200 else probe.refused(damaged, status))


def _damaged(source: random.Random, body: bytes) -> bytes:
    """The body with a piece cut out, doubled, or replaced by other bytes."""
    start = source.randrange(len(body))
    end = min(len(body), start + source.choice((1, 1, 1, 2, 5, 40)))
    piece = source.choice((b"", bytes([source.choice(_INTERESTING)]), body[start:end] * 2, body[end:start:-1]))
    return body[:start] + piece + body[end:]


def _expected(post: Post, probe: Probe) -> int:
    """The status that a function answers with."""
    try:
        envelope = json.loads(post.body.decode())
    except (ValueError, RecursionError):
        return 400
    return verify_envelope(envelope, post.headers.get("X-RunR-Signature"), probe.keys, time.time()).status


RULES = (Rule("envelope-damaged", 6, _mutated),)
"""In the order in which they are checked."""
