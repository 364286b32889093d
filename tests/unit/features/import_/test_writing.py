"""Flow style that reads as what was meant."""

from hypothesis import given
from hypothesis import strategies as st

from proxylab.features.import_.importing import flow
from proxylab.scenario.document import Problems
from proxylab.scenario.source import read_documents

AWKWARD = ["on", "No", "null", "None", "1e3", "0x1F", ".5", "-1", "10.0.0.1", "10.0.0.0/16", "fd00::1", "2026-01-01"]
WORDS = st.sampled_from([*AWKWARD, "a: b", "- x", "x #y", "", *"~-?:,[]{}&*!|>%@`"]) | st.text(
    "abXY019.:/-_ #'\"{}[],&*!|>%@`", max_size=12
)
VALUES = st.recursive(
    WORDS | st.integers(-9, 70_000) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_it_reads_as_what_was_written(value: object) -> None:
    problems = Problems()
    (document,), _ = read_documents(f"it: {flow(value)}\n", "x", problems)
    problems.raise_any()
    assert document.value == {"it": value}
