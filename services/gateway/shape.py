"""Shapes of requests: which fields a body or a query may have, declared once for reading and for the API's description.

A body is refused with every fault by path, the value that was sent and what is allowed; unknown fields are faults.
Payloads of users are taken as the JSON text that arrived.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.core.domain.errors import DomainError, FieldError, InvalidInput, Malformed
from services.core.domain.json_text import Raw, parse, read_object
from services.core.domain.text_rule import json_type

Values = Mapping[str, Any]
"""The fields that were present, read."""

_SHOWN = 80
_MOST_UNKNOWN = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field holds. `read` raises ValueError or a DomainError with a text like "must be true or false"."""

    schema: Mapping[str, Any]
    read: Callable[[Raw], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body. What `is_secret` is not told in a fault: whoever keeps answers would keep it."""

    name: str
    kind: Kind
    required: bool = False
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a JSON object. An absent body counts as `{}`."""

    fields: tuple[Field, ...]

    def read(self, body: bytes) -> Values:
        """The fields of a body. Raises Malformed where it is no JSON, InvalidInput for everything else."""
        members = _members(body)
        return self.values(members, "")

    def values(self, members: Mapping[str, Raw], prefix: str) -> Values:
        """The fields of an object whose path is `prefix` (with a dot behind it, or empty). Raises InvalidInput."""
        faults: list[FieldError] = []
        values: dict[str, Any] = {}
        known = 0
        for field in self.fields:
            raw = members.get(field.name)
            if raw is None:
                if field.required:
                    faults.append(FieldError(f"{prefix}{field.name}", "is required"))
                continue
            known += 1
            try:
                values[field.name] = field.kind.read(raw)
            except InvalidInput as error:
                faults.extend(_below(f"{prefix}{field.name}", error, raw))
            except ValueError as error:
                got = "" if field.is_secret else f", got {shown(raw.text)}"
                faults.append(FieldError(f"{prefix}{field.name}", f"{error}{got}"))
        if known < len(members):
            faults = [*self._unknown(members, prefix), *faults]
        if faults:
            raise InvalidInput.of_all(faults)
        return values

    def _unknown(self, members: Mapping[str, Raw], prefix: str) -> list[FieldError]:
        known = {field.name for field in self.fields}
        allowed = ", ".join(field.name for field in self.fields) or "none"
        unknown = [name for name in members if name not in known]
        faults = [
            FieldError(f"{prefix}{name[:_SHOWN]}", f"unknown field; allowed: {allowed}")
            for name in unknown[:_MOST_UNKNOWN]
        ]
        if len(unknown) > _MOST_UNKNOWN:
            # An answer must not be many times its question.
            faults.append(FieldError(prefix.rstrip("."), f"{len(unknown) - _MOST_UNKNOWN} more unknown fields"))
        return faults


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a query. `read` takes its text; `many` allows it several times and gives a list."""

    name: str
    read: Callable[[str], Any]
    schema: Mapping[str, Any]
    many: bool = False


def read_query(params: tuple[Param, ...], query: Any) -> Values:
    """The parameters of a query (a multidict). Raises InvalidInput with every fault."""
    known = {param.name: param for param in params}
    allowed = ", ".join(known) or "none"
    faults: list[FieldError] = []
    values: dict[str, Any] = {}
    for name in dict.fromkeys(query):
        param = known.get(name)
        texts = query.getall(name)
        if param is None:
            faults.append(FieldError(name[:_SHOWN], f"unknown parameter; allowed: {allowed}"))
            continue
        if len(texts) > 1 and not param.many:
            faults.append(FieldError(name, f"must be given once, came {len(texts)} times"))
            continue
        try:
            read = [param.read(text) for text in texts]
            values[name] = read if param.many else read[0]
        except (DomainError, ValueError) as error:
            faults.append(FieldError(name, f"{error}, got {shown(json.dumps(texts[0]))}"))
    if faults:
        raise InvalidInput.of_all(faults)
    return values


def shown(text: str) -> str:
    """A value for a message, cut."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _members(body: bytes) -> Mapping[str, Raw]:
    if not body.strip():
        return {}
    try:
        return read_object(body)
    except Malformed:
        # Not an object, or no JSON at all: only the second is malformed.
        value = parse(body)
    raise InvalidInput.of("", f"the body must be a JSON object, not {json_type(value)}")


def _below(path: str, error: InvalidInput, raw: Raw) -> list[FieldError]:
    if not error.errors:
        return [FieldError(path, f"{error.message}, got {shown(raw.text)}")]
    return [FieldError(f"{path}.{fault.path}" if fault.path else path, fault.message) for fault in error.errors]
