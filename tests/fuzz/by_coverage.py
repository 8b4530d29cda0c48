"""`python -m tests.fuzz.by_coverage PARSER [libfuzzer options] CORPUS`: input that is led by which code it reaches."""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Not a need of the other tests.
atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["services.core.domain"]):
    from tests.fuzz.test_parsers import judge
    from tests.support.parsers import PARSERS


def main() -> None:
    """Goes on until the time of the options is over, or something breaks."""
    parser = PARSERS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, lambda data: judge(parser, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
