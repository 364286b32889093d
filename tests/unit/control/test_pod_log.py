"""The log of a pod: which lines a client gets, and how."""

from datetime import UTC, datetime, timedelta

import pytest

from proxylab.control.kubernetes.pod_log import LogLine, LogQuestion, PodLog

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LINES = tuple(LogLine(number, NOON + timedelta(seconds=number), f"line {number}") for number in range(5))


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"tailLines": "2"}, [3, 4]),
        ({"tailLines": "0"}, []),
        ({"tailLines": "9"}, [0, 1, 2, 3, 4]),
        ({"sinceTime": "2026-01-02T12:00:03Z"}, [3, 4]),
        ({"sinceTime": "2026-01-02T12:00:03Z", "tailLines": "1"}, [4]),
        ({"sinceSeconds": "60"}, []),
    ],
)
def test_a_client_gets_the_lines_that_it_asks_for(query: dict[str, str], numbers: list[int]) -> None:
    assert [each.number for each in LogQuestion.read(query).first(LINES)] == numbers


def test_lines_are_stamped_on_demand() -> None:
    assert LogQuestion.read({}).text(LINES[:1]) == b"line 0\n"
    assert LogQuestion.read({"timestamps": "true"}).text(LINES[:1]) == b"2026-01-02T12:00:00.000000000Z line 0\n"


def test_a_query_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="many"):
        LogQuestion.read({"tailLines": "many"})


def test_the_last_lines_stay_and_keep_their_numbers() -> None:
    log = PodLog()
    for number in range(1500):
        log.add(f"line {number}")
    assert (log.count, len(log.since())) == (1500, 1000)
    assert [each.text for each in log.since(1498)] == ["line 1498", "line 1499"]
