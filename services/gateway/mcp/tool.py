"""One tool of the MCP server: a route of the REST API with a name for agents, and its arguments as one flat object.

A tool adds nothing to its route: the same gRPC method, the same rules for what is given, the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from multidict import MultiDict

from services.core.domain.errors import FieldError, InvalidInput, Malformed
from services.core.domain.event import EventLimits
from services.core.domain.json_text import Raw, dump
from services.core.domain.named_write import name_of
from services.gateway.kinds import text
from services.gateway.route import Input, Route
from services.gateway.shape import Kind, Param, read_query, shown

_PLACES = re.compile(r"\{(\w+)\}")
_PLACE = text(200)
_NAME, _KEY = "idempotency_key", text(255)
_MOST_FAULTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """`words` says what each argument means; those in `defaults` may be left out of a path.

    `body` is what a route with a raw body takes, by its members; `required` names those that it needs. `adds`,
    `changes` and `repeatable` are hints for who decides whether a call needs a person's consent: a tool with neither of
    the first two only reads. A `named` one takes the Idempotency-Key of its call as an argument.
    """

    name: str
    title: str
    description: str
    route: Route
    words: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    adds: bool = False
    changes: bool = False
    repeatable: bool = False
    named: bool = False

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        properties: dict[str, Any] = {}
        required = list(self.required)
        for place in self._places():
            properties[place] = dict(_PLACE.schema)
            if place in self.defaults:
                properties[place]["default"] = self.defaults[place]
            else:
                required.append(place)
        for param in self.route.query:
            item = dict(param.schema)
            properties[param.name] = {"type": "array", "items": item} if param.many else item
        for name, kind in self._body().items():
            properties[name] = dict(kind.schema)
        if self.named:
            properties[_NAME] = dict(_KEY.schema)
        if self.route.body is not None:
            required += [each.name for each in self.route.body.fields if each.required]
        for name, schema in properties.items():
            schema["description"] = self.words[name]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer. Its root is an object, as MCP demands, not a reference to one."""
        schema = msgspec.json.schema(self.route.view)
        parts = schema["$defs"]
        root = parts[schema["$ref"].rpartition("/")[2]]
        return {**root, "$defs": parts}

    def read(self, arguments: Mapping[str, Raw], limits: EventLimits) -> tuple[Input, str | None]:
        """What the route's request is made of, and the name of the write. Arguments that are null count as left out.

        Raises InvalidInput with every fault by the argument's name.
        """
        given = {name: raw for name, raw in arguments.items() if raw.value is not None}
        faults: list[FieldError] = []
        path = {place: self._place(place, given.pop(place, None), faults) for place in self._places()}
        query = self._query(given, faults)
        name = self._write_name(given, faults)
        body = self._body()
        known = self.input_schema()["properties"]
        for name in [name for name in given if name not in body]:
            del given[name]
            faults.append(FieldError(name[:80], f"unknown argument; allowed: {', '.join(known) or 'none'}"))
        values: Mapping[str, Any] = {}
        if self.route.body is not None:
            try:
                values = self.route.body.values(given, "")
            except InvalidInput as error:
                faults.extend(error.errors)
        if faults:
            raise InvalidInput.of_all(faults[:_MOST_FAULTS])
        raw = "{" + ",".join(f"{dump(name)}:{value.text}" for name, value in given.items()) + "}"
        return Input(path=path, query=query, body=values, raw=raw.encode(), events=limits), name

    def _places(self) -> list[str]:
        return _PLACES.findall(self.route.path)

    def _body(self) -> Mapping[str, Kind]:
        if self.route.body is None:
            return self.body
        return {each.name: each.kind for each in self.route.body.fields}

    def _place(self, name: str, given: Raw | None, faults: list[FieldError]) -> str:
        if given is None:
            if name not in self.defaults:
                faults.append(FieldError(name, "is required"))
            return self.defaults.get(name, "")
        try:
            return str(_PLACE.read(given))
        except ValueError as error:
            faults.append(FieldError(name, f"{error}, got {shown(given.text)}"))
            return ""

    def _write_name(self, given: dict[str, Raw], faults: list[FieldError]) -> str | None:
        """The name that the caller has given the write, which is taken out of `given`."""
        raw = given.pop(_NAME, None) if self.named else None
        if raw is None:
            return None
        try:
            return name_of(str(_KEY.read(raw)))
        except (ValueError, Malformed) as error:
            faults.append(FieldError(_NAME, f"{error}, got {shown(raw.text)}"))
            return None

    def _query(self, given: dict[str, Raw], faults: list[FieldError]) -> Mapping[str, Any]:
        """The arguments that are the route's query, which are taken out of `given`."""
        query: MultiDict[str] = MultiDict()
        for param in self.route.query:
            raw = given.pop(param.name, None)
            if raw is None:
                continue
            try:
                query.extend((param.name, word) for word in _words(param, raw))
            except ValueError as error:
                faults.append(FieldError(param.name, f"{error}, got {shown(raw.text)}"))
        try:
            return read_query(self.route.query, query)
        except InvalidInput as error:
            faults.extend(error.errors)
            return {}


def _words(param: Param, raw: Raw) -> list[str]:
    """A value as it would stand in a query."""
    values = raw.value if param.many and isinstance(raw.value, list) else [raw.value]
    if not isinstance(values, list):
        raise TypeError("a list stays a list")
    return [_word(value) for value in values]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise ValueError("must be a text, a whole number, true or false")
