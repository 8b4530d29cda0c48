"""Names of the workflows that a function serves for the conformance runner (docs/how-to/conformance.md)."""

from __future__ import annotations

REPLAY = "conformance-replay"
IDS = "conformance-ids"
ERRORS = "conformance-errors"
KINDS = "conformance-kinds"
VALUES = "conformance-values"
SWALLOW = "conformance-swallow"
NESTED = "conformance-nested"
TOGETHER = "conformance-together"

ALL = (REPLAY, IDS, ERRORS, KINDS, VALUES, SWALLOW, NESTED, TOGETHER)
