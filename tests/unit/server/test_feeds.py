"""The new lines of a log that forgets its beginning."""

import pytest

from proxylab.server.feeds import new_lines


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ((), (), ()),
        ((), ("a", "b"), ("a", "b")),
        (("a", "b"), ("a", "b"), ()),
        (("a", "b"), ("a", "b", "c"), ("c",)),
        (("a", "b", "c"), ("b", "c", "d"), ("d",)),
        (("a", "a"), ("a", "a", "a"), ("a",)),
        (("a", "b"), ("x", "y"), ("x", "y")),
    ],
)
def test_news_are_what_was_not_there(before: tuple[str, ...], now: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert new_lines(before, now) == new
