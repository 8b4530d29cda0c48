"""Any bytes to any parser: taken or refused, nothing else. `make fuzz` also lets coverage lead the way (atheris)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.support.fuzzing import fuzz, seconds
from tests.support.parsers import PARSERS, Parser

FEW = 200
SHARE = 0.1 / len(PARSERS)
EVERY = pytest.mark.parametrize("name", PARSERS)


@st.composite
def mutated(draw: st.DrawFn, taken: list[bytes]) -> bytes:
    """A text that is taken, with some pieces of it gone, doubled, or replaced by others or by anything."""
    data = draw(st.sampled_from(taken))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 8)))
        other = draw(st.sampled_from(taken))
        at = draw(st.integers(0, len(other)))
        piece = draw(st.sampled_from([b"", data[begin:end] * 2, other[at : at + 8]]) | st.binary(max_size=4))
        data = data[:begin] + piece + data[end:]
    return data


def judge(parser: Parser, data: bytes) -> None:
    try:
        parser.take(data)
    except parser.refusals:
        return


@EVERY
def test_what_is_a_text_of_the_parser_is_taken(name: str) -> None:
    for data in PARSERS[name].taken:
        PARSERS[name].take(data)


@EVERY
def test_no_text_breaks_a_parser(name: str) -> None:
    parser = PARSERS[name]
    values = mutated(list(parser.taken)) | st.binary(max_size=40) | st.text(max_size=30).map(str.encode)
    fuzz(lambda data: judge(parser, data), values, few=FEW, share=SHARE)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@EVERY
def test_no_new_path_breaks_a_parser(name: str, tmp_path: Path) -> None:
    limit = seconds()
    if limit is None:
        pytest.skip("only make fuzz has the time for this")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for place, data in enumerate(PARSERS[name].taken):
        (corpus / str(place)).write_bytes(data)
    time_s = max(1, round(limit * SHARE))
    command = [sys.executable, "-m", "tests.fuzz.by_coverage", name, f"-max_total_time={time_s}", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=time_s + 120, check=False)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
