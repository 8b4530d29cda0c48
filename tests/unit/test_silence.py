"""Silence of owners, as one process sees it: by counts of beats and its own monotonic clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.duties.silence import Silence

A, B = 1, 2


def test_silence_counts_from_the_last_beat_that_was_seen() -> None:
    silence = Silence()
    silence.look({A: 7, B: 1}, 100.0)
    silence.look({A: 7, B: 2}, 103.0)
    assert (silence.of(A, 105.0), silence.of(B, 105.0)) == (5.0, 2.0)


def test_who_was_seen_to_beat_or_to_begin_has_beaten() -> None:
    silence = Silence()
    silence.look({A: 7}, 0.0)
    assert not silence.has_beaten(A), "it was there already: nobody knows for how long it has been silent"
    silence.look({A: 7, B: 0}, 1.0)
    assert (silence.has_beaten(A), silence.has_beaten(B)) == (False, True)
    silence.look({A: 8, B: 0}, 2.0)
    assert silence.has_beaten(A)


def test_what_was_seen_before_a_gap_says_nothing() -> None:
    silence = Silence()
    silence.look({A: 7}, 0.0)
    silence.look({A: 8}, 1.0)
    silence.forget()
    silence.look({A: 8}, 60.0)
    assert silence.of(A, 61.0) == 1.0
    assert not silence.has_beaten(A)


def test_an_owner_that_was_away_begins_anew() -> None:
    silence = Silence()
    silence.look({A: 7, B: 0}, 0.0)
    silence.look({B: 0}, 1.0)
    silence.look({A: 7, B: 0}, 5.0)
    assert silence.of(A, 6.0) == 1.0


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.booleans()), min_size=1, max_size=40))
def test_an_owner_that_beats_is_never_silent_for_longer_than_the_longest_pause_that_was_looked_over(
    looks: list[tuple[float, bool]],
) -> None:
    silence, now, beats, since = Silence(), 0.0, 0, 0.0
    silence.look({A: beats}, now)
    for pause, has_beaten in looks:
        now += pause
        if has_beaten:
            beats, since = beats + 1, now
        silence.look({A: beats}, now)
        assert silence.of(A, now) == now - since
