"""The values and positions that YAML and JSON text become."""

import json

import pytest

from proxylab.errors import ScenarioError
from proxylab.scenario.document import Document, Problems
from proxylab.scenario.source import read_documents


def read(text: str) -> list[Document]:
    problems = Problems()
    documents, complete = read_documents(text, "f", problems)
    problems.raise_any()
    assert complete
    return documents


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(
            (each, each)
            for each in ("on", "yes", "no", "off", "y", "1:30", "0b11", "1_000", "0x", "=", "2026-01-02", "+")
        ),
        *((each, each) for each in ("tRUE", "NULL1", "e3", ".", "1.2.3", "10.0.0.1", "fd00::1", "<<", "0o8", "-0x1")),
        *((each, None) for each in ("", "~", "null", "Null", "NULL")),
        *((each, True) for each in ("true", "True", "TRUE")),
        ("FALSE", False),
        ("0777", 777),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0", 0),
        ("+12", 12),
        ("9223372036854775807", 9223372036854775807),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("-.INF", float("-inf")),
        ("'1'", "1"),
        ('""', ""),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("!!seq []", []),
        ("|\n 1", "1\n"),
    ],
)
def test_scalars_mean_what_the_core_schema_of_1_2_says(written: str, value: object) -> None:
    (document,) = read(f"key: {written}\n")
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_an_alias_is_the_most_recent_value_of_its_anchor() -> None:
    (document,) = read("a: &x 1\nb: *x\nc: &x {d: 2}\ne: *x\n")
    assert document.value == {"a": 1, "b": 1, "c": {"d": 2}, "e": {"d": 2}}
    assert document.root["e"]["d"].spot.position.line == 3


def test_the_items_of_a_list_in_json_have_their_own_places() -> None:
    items = [{"kind": "Service", "metadata": {"name": name}} for name in ("é", "b")]
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    for indent, places in ((2, [(5, 5), (11, 5)]), (None, [(1, 48), (1, 96)])):
        documents = read(json.dumps(whole, indent=indent, ensure_ascii=False))
        starts = [document.root.spot.position for document in documents]
        assert [(each.line, each.column) for each in starts] == places
        assert [document.value for document in documents] == items
        for index, document in enumerate(documents):
            spot = document.root["metadata"]["name"].spot
            assert spot.path == ("items", index, "metadata", "name")
            assert spot.position.line == starts[index].line + (3 if indent else 0)
            assert document.root["metadata"]["missing"].spot.position == document.root["metadata"].key.position


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "a": 2}', "f:2:2: a: the key appears twice, first in line 1"),
        (
            '{"apiVersion": "v1", "kind": "List", "items": [{},\n{"a": 1, "a": 2}]}',
            "f:2:10: items[1].a: the key appears",
        ),
        ('{"a": "1" "b"}', "f:1:11: not valid YAML: while parsing a flow mapping: expected ',' or '}', found"),
        (
            '{"a": [1,',
            "f:1:10: not valid YAML: while parsing a flow node: did not find expected node content; the text",
        ),
    ],
)
def test_mistakes_in_json_are_told_with_their_place(text: str, said: str) -> None:
    problems = Problems()
    read_documents(text, "f", problems)
    with pytest.raises(ScenarioError) as caught:
        problems.raise_any()
    assert str(caught.value).startswith(said)
