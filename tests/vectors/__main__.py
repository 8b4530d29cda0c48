"""`python -m tests.vectors DIR`: exits 0 if no row failed and every file of the folder is known."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tests.vectors.runner import run_folder


def main() -> int:
    """Run the vectors of a folder and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of vector files")
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        parser.error(f"{folder} is not a folder")
    # Rows that must fail are not the reader's concern: the report alone says how they ended.
    logging.getLogger("runr_workflows").addHandler(logging.NullHandler())
    report = run_folder(folder)
    for line in report.lines():
        print(line)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
