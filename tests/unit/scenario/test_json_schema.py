"""The JSON Schema and the reference page: that they are of today, and that the schema agrees with the reader."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from broken_scenarios import BASE, broken_scenarios

from proxylab.scenario.document import Problems
from proxylab.scenario.json_schema import DRAFT, json_schema, reference_page
from proxylab.scenario.source import read_documents

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "lab" / "proxylab" / "scenario" / "schema.json"
PAGE = ROOT / "docs" / "reference" / "scenario.md"
SCENARIOS = sorted((ROOT / "scenarios").rglob("*.lab.yaml"))
SCHEMA = json_schema()


def faults(text: str) -> list[str]:
    validator = jsonschema.Draft7Validator(SCHEMA)
    return [
        error.message
        for document in read_documents(text, "f", Problems())[0]
        for error in validator.iter_errors(document.value)
    ]


def parts(schema: Any) -> Any:
    yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(inner)


def test_the_kept_schema_is_that_of_the_models() -> None:
    assert json.loads(KEPT.read_text()) == SCHEMA, "proxylab schema > lab/proxylab/scenario/schema.json"


def test_the_reference_page_is_that_of_the_models() -> None:
    assert PAGE.read_text() == reference_page(), "proxylab schema --reference > docs/reference/scenario.md"


def test_it_is_a_draft_07_schema_without_what_came_later() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == DRAFT
    keys = {key for part in parts(SCHEMA) if isinstance(part, dict) for key in part}
    assert keys & {"$defs", "prefixItems", "unevaluatedProperties", "dependentRequired", "discriminator"} == set()
    assert [part for part in parts(SCHEMA) if isinstance(part, dict) and "$ref" in part and len(part) > 1] == []


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.name)
def test_every_scenario_of_the_tree_keeps_to_it(file: Path) -> None:
    assert faults(file.read_text()) == []


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.name)
def test_every_scenario_of_the_tree_names_it_in_its_first_line(file: Path) -> None:
    first = file.read_text().partition("\n")[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert named != first
    assert (file.parent / named).resolve() == KEPT


@pytest.mark.parametrize(
    "name",
    [
        "unknown key",
        "missing key",
        "number that is a text",
        "unknown version of the format",
        "axis without values",
        "spread unknown",
        "axis unknown",
        "slice with an unknown key",
    ],
)
def test_it_finds_mistakes_of_shape(name: str) -> None:
    (case,) = [case for case in broken_scenarios() if case.name == name]
    assert faults(BASE) == []
    assert faults(case.text) != []


@pytest.mark.parametrize(("key", "is_known"), [("lost", True), ("lots", False)])
def test_it_knows_the_keys_of_what_a_step_expects_of_a_stream(key: str, is_known: bool) -> None:
    step = f"steps: [{{name: one, expect: {{queries: {{{key}: 0}}}}}}]"
    assert (faults(BASE.replace("spec:\n", f"spec:\n  {step}\n", 1)) == []) is is_known


@pytest.mark.parametrize(
    ("manifest", "mistake"),
    [
        ({"kind": "Pod", "spec": {"containers": [{"image": "web", "ports": [{"containerPort": 80}]}]}}, {"spec": []}),
        ({"kind": "Node", "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, {"spec": {"taints": [{}]}}),
        ({"kind": "Endpoints", "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]}, {"subset": []}),
    ],
    ids=["Pod", "Node", "Endpoints"],
)
def test_it_knows_the_keys_of_a_manifest_that_the_lab_reads(manifest: dict[str, Any], mistake: dict[str, Any]) -> None:
    whole = {"apiVersion": "v1", "metadata": {"name": "a"}, **manifest}
    assert faults(json.dumps(whole)) == []
    assert faults(json.dumps({**whole, **mistake})) != []


def test_a_bind_address_is_a_text() -> None:
    kind = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    assert faults(f"{kind}healthzBindAddress: 0.0.0.0:10256\nmetricsBindAddress: '[::]:10249'\n") == []
    assert faults(f"{kind}healthzBindAddress: {{address: 0.0.0.0, port: 10256}}\n") != []


def test_every_key_has_a_description_and_every_example_is_as_the_schema_wants_it() -> None:
    for name, definition in SCHEMA["definitions"].items():
        assert definition["description"], name
        for key, schema in definition.get("properties", {}).items():
            for example in schema.get("examples", ()):
                jsonschema.Draft7Validator({**schema, "definitions": SCHEMA["definitions"]}).validate(example)
            assert schema["description"].endswith("."), (name, key)


def test_the_page_has_an_example_for_every_key() -> None:
    rows = [line for line in reference_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith(": null` |")] == []
