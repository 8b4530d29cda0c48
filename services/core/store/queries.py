"""Named SQL statements, kept in `.sql` files beside this module: no SQL strings elsewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@cache
def queries(file: str) -> dict[str, str]:
    """The statements of `sql/{file}.sql` by name. A statement begins with a line `-- name: its_name`."""
    parts = _NAME.split((_FOLDER / f"{file}.sql").read_text(encoding="utf-8"))
    return {name: text.strip().rstrip(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def tenant_query(file: str, name: str, tenant: int) -> str:
    """A statement over one tenant's own schema: `{t}` in its text becomes that schema, and nothing else can."""
    return queries(file)[name].replace("{t}", f"t_{tenant:d}")
