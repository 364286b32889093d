"""Shards have every file once, are the same in whichever order the files are found, and are balanced."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from proxylab.report.shards import Shard, missing_shards, recorded_seconds

FILES = st.lists(st.from_regex(r"[a-c]/[a-z]{1,4}\.lab\.yaml", fullmatch=True), unique=True, max_size=30)
SECONDS = st.floats(min_value=0.01, max_value=100)


@settings(max_examples=examples(50), deadline=None)
@given(files=FILES, of=st.integers(1, 6), data=st.data())
def test_every_file_is_in_one_shard_and_no_shard_has_too_much(files: list[str], of: int, data: st.DataObject) -> None:
    known = data.draw(st.dictionaries(st.sampled_from(files), SECONDS)) if files else {}
    seconds = {file.replace("/", "."): each for file, each in known.items()}
    shards = [Shard(index, of).files(files, seconds) for index in range(1, of + 1)]
    assert sorted(each for shard in shards for each in shard) == sorted(files)
    mixed = random.Random(0).sample(files, len(files))
    assert shards == [Shard(index, of).files(mixed, seconds) for index in range(1, of + 1)]
    if known == {}:
        counts = sorted(map(len, shards))
        assert counts[-1] - counts[0] <= 1
    elif len(known) == len(files):
        # Whichever is the longest got its last file when it was the shortest (Graham's bound).
        loads = sorted(sum(known[each] for each in shard) for shard in shards)
        assert loads[-1] <= sum(loads) / of + max(known.values())


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "one/two", "1/99999"])
def test_anything_else_is_no_shard(text: str) -> None:
    with pytest.raises(ValueError, match="give I/N"):
        Shard.read(text)


def test_a_document_and_junit_record_the_same_times() -> None:
    document = """{"scenarios": [
        {"file": "scenarios/dns/a.lab.yaml", "seconds": 0.5}, {"file": "./scenarios/dns/a.lab.yaml", "seconds": 1}]}"""
    junit = """<testsuites><testsuite><testcase classname="scenarios.dns.a.lab.yaml" name="x" time="0.5"/>
        <testcase classname="scenarios.dns.a.lab.yaml" name="y" time="1.0"/></testsuite></testsuites>"""
    assert recorded_seconds(document) == recorded_seconds(junit) == {"scenarios.dns.a.lab.yaml": 1.5}


@pytest.mark.parametrize("text", ["", "<a>", "{}", "[]", '{"scenarios": [{}]}', '{"scenarios": 1}', "1", "scenarios"])
def test_any_other_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a JSON document"):
        recorded_seconds(text)


def test_a_missing_shard_has_a_name() -> None:
    assert missing_shards(["1/3", "3/3", "1/3"]) == ["2/3"]
    assert missing_shards(["1/2", "2/2", "1/1"]) == []
    assert all(left < right for left, right in pairwise(missing_shards(["5/5"])))
