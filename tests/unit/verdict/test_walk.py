"""A probe's walk from its evidence to the printed cause stays short, and works out each fact of the case once."""

from collections import Counter
from functools import cached_property
from typing import Final

import pytest
from walked import Walk, lost, to_the_cause

from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow

MOST_FILES: Final = {"verdict": 20, "report": 4, "": 9}
"""How many files of these two rooms the walk may enter, and of all others: words, rules, and the format's records.

A number may fall. One that must grow needs a reason in the commit that lets it."""


@pytest.fixture(scope="module")
def walk() -> Walk:
    return to_the_cause(*lost())


def test_the_walk_enters_few_files(walk: Walk) -> None:
    rooms = Counter(room if room in MOST_FILES else "" for room in (file.partition("/")[0] for file in walk.files))
    assert {room: count for room, count in rooms.items() if count > MOST_FILES[room]} == {}, sorted(walk.files)
    assert rooms["verdict"] > 10


@pytest.mark.parametrize("record", [Case, Flow])
def test_the_walk_works_out_each_fact_once(walk: Walk, record: type) -> None:
    facts = [name for name, each in vars(record).items() if isinstance(each, cached_property)]
    found = {
        name: walk.calls[f"verdict/{record.__module__.rpartition('.')[2]}.py:{record.__name__}.{name}"]
        for name in facts
    }
    assert {name: count for name, count in found.items() if count > 1} == {}
    assert sum(found.values()) > 4


def test_the_walk_sorts_flows_and_reads_rules_once(walk: Walk) -> None:
    assert walk.calls["verdict/flows.py:flows_of"] == walk.calls["verdict/counted_rules.py:read_all"] == 1
