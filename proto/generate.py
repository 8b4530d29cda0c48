"""Generates the Python code of all protos: `python proto/generate.py [OUT]`.

One call of protoc (grpc_tools), no post-processing: package, path and import path are the same, so none is needed.
`--descriptors FILE` writes a descriptor set with comments instead; `--baseline` refreshes `baseline.binpb`, which is
what the breaking check compares with, and belongs into a release commit only.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "gen" / "python"


def _protoc(*options: str) -> None:
    from grpc_tools import protoc

    sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "runr").rglob("*.proto"))
    wellknown, googleapis = files("grpc_tools") / "_proto", files("google.rpc") / ".." / ".."
    includes = [f"-I{ROOT}", f"-I{wellknown}", f"-I{googleapis}"]
    if protoc.main(["protoc", *includes, *options, *sources]) != 0:
        raise SystemExit("protoc failed")


def generate(out: Path) -> None:
    """Writes `*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` of every proto below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    _protoc(f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}")


def describe(target: Path, *, comments: bool) -> None:
    """Writes a FileDescriptorSet of every proto (imports left out); with `comments`, source info too."""
    _protoc(f"--descriptor_set_out={target}", *(["--include_source_info"] if comments else []))


def main(argv: list[str]) -> None:
    """The command line, see the module's docstring."""
    parser = argparse.ArgumentParser(description="Generates the Python code of the protos.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--descriptors", type=Path, metavar="FILE")
    parser.add_argument("--baseline", action="store_true")
    args = parser.parse_args(argv)
    if args.descriptors is not None:
        describe(args.descriptors, comments=True)
    elif args.baseline:
        describe(ROOT / "baseline.binpb", comments=False)
    else:
        generate(args.out)


if __name__ == "__main__":
    main(sys.argv[1:])
