"""JSON schemas of answers, made of the types that answers are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.gateway.problem import Problem

Schema = dict[str, Any]

_REF = "#/components/schemas/"
_PAGE = re.compile(r"Page_(\w+)_")


class Schemas:
    """The schemas of some types. `of` names one of them, `components` are all that these names lead to."""

    def __init__(self, views: Iterable[Any]) -> None:
        types = list(dict.fromkeys(view for view in (*views, Problem) if view is not None))
        found, components = msgspec.json.schema_components(types, schema_hook=_any_json, ref_template=_REF + "{name}")
        self._names = {view: _named(schema) for view, schema in zip(types, found, strict=True)}
        self.components: Mapping[str, Schema] = {
            _plain(name): _told(_named(schema)) for name, schema in sorted(components.items())
        }

    def of(self, view: Any) -> Schema:
        """A reference to the schema of a type."""
        return self._names[view]


def _any_json(kind: Any) -> Schema:
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError(kind)


def _named(schema: Schema) -> Schema:
    """The same with plain names in its references."""
    text = re.sub(rf'"{_REF}(\w+)"', lambda match: f'"{_REF}{_plain(match[1])}"', json.dumps(schema))
    named: Schema = json.loads(text)
    return named


def _plain(name: str) -> str:
    """`RunView` → Run, `Page_RunView_` → RunPage."""
    page = _PAGE.fullmatch(name)
    return f"{_plain(page[1])}Page" if page else name.removesuffix("View")


def _told(schema: Schema) -> Schema:
    """A component with the formats that its fields' names tell, and its words on one line."""
    for name, field in schema.get("properties", {}).items():
        if name.endswith("_at"):
            for option in field.get("anyOf", [field]):
                if option.get("type") == "string":
                    option["format"] = "date-time"
    if "title" in schema:
        schema["title"] = _plain(schema["title"].replace("[", "_").replace("]", "_"))
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    return schema
