"""Ranges of versions."""

import pytest

from proxylab.scenario.versions import read_range, read_version


@pytest.mark.parametrize("text", ["1.34", "v1.34", "v1.34.0"])
def test_a_minor_begins_with_its_first_patch(text: str) -> None:
    assert read_version(text) == (1, 34)
    assert read_version(text) < read_version("v1.34.2") < read_version("1.35")


@pytest.mark.parametrize(
    ("text", "within", "beside"),
    [
        ("<1.30", [(1, 0), (1, 29)], [(1, 30)]),
        (">=1.29", [(1, 29), (2, 0)], [(1, 28)]),
        (">=1.29 <1.33", [(1, 29), (1, 32)], [(1, 28), (1, 33)]),
        ("< v1.30", [(1, 29)], [(1, 30)]),
        ("1.34", [(1, 34), (1, 34, 9)], [(1, 33, 9), (1, 35)]),
        ("1.34.2", [(1, 34, 2)], [(1, 34), (1, 34, 1), (1, 34, 3)]),
        ("<1.33.6", [(1, 32, 11), (1, 33), (1, 33, 5)], [(1, 33, 6), (1, 34)]),
        (">=1.34.0 <1.34.2", [(1, 34), (1, 34, 1)], [(1, 33, 12), (1, 34, 2)]),
    ],
)
def test_what_is_in_a_range(text: str, within: list[tuple[int, ...]], beside: list[tuple[int, ...]]) -> None:
    found = read_range(text)
    assert all(version in found for version in within)
    assert not any(version in found for version in beside)
    assert read_range(str(found)) == found


@pytest.mark.parametrize("text", ["", "1", "<", ">1.29", "1.29 <1.30", "<1.30 <1.31", "<1.30 >=1.31", "a<1.30"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"range of versions|no version|not a version"):
        read_range(text)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("<1.30", ">=1.30", False),
        ("<1.30", ">=1.29", True),
        ("<1.30", "<1.20", True),
        ("1.29", "1.30", False),
        ("<1.33.6", "1.33", True),
        ("<1.33.6", ">=1.34 <1.34.2", False),
    ],
)
def test_whether_ranges_meet(one: str, other: str, meet: bool) -> None:
    assert read_range(one).meets(read_range(other)) is meet
    assert read_range(other).meets(read_range(one)) is meet
