"""All rules."""

from __future__ import annotations

from services.cli.conformance import (
    capability_rules,
    envelope_rules,
    error_rules,
    id_rules,
    kind_rules,
    mutation_rules,
    replay_rules,
    signature_rules,
    transport_rules,
    value_rules,
)

RULES = (
    *signature_rules.RULES,
    *envelope_rules.RULES,
    *mutation_rules.RULES,
    *transport_rules.RULES,
    *replay_rules.RULES,
    *id_rules.RULES,
    *error_rules.RULES,
    *kind_rules.RULES,
    *value_rules.RULES,
    *capability_rules.RULES,
)
"""In the order in which they are checked."""
