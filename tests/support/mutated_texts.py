"""Texts with small random changes.

The strategy chooses where a text changes, and how much. It knows no format.
"""

from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["mutated"]


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[str], pieces: st.SearchStrategy[str]) -> str:
    """One of the seeds, with a few pieces taken out, put in, repeated or exchanged."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 3, 10, 60])))
        text = text[:start] + draw(st.one_of(pieces, st.just(text[start:end] * 2))) + text[end:]
    return text
