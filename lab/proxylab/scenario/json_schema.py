"""The format for editors and readers: JSON Schema draft-07, and the reference page that is made from it.

Pydantic makes the schema from the shapes. A scenario file is a stream of documents, and an editor checks each of them
against the whole schema. So the schema first selects by kind; a Kubernetes kind without a shape here needs only
``apiVersion`` and ``kind``. The page is Markdown, with an example for each key.
"""

from collections.abc import Iterator
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from proxylab.scenario.configuration import KubeProxyManifest
from proxylab.scenario.document import in_yaml
from proxylab.scenario.reading import Shape, shape_of
from proxylab.scenario.services import ServiceManifest
from proxylab.scenario.spec import ScenarioDocument
from proxylab.scenario.workloads import EndpointSliceManifest, EndpointsManifest, NodeManifest, PodManifest

DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_DOCUMENTS: Final = {
    "Scenario": ScenarioDocument,
    "Service": ServiceManifest,
    "EndpointSlice": EndpointSliceManifest,
    "Endpoints": EndpointsManifest,
    "Pod": PodManifest,
    "Node": NodeManifest,
    "KubeProxyConfiguration": KubeProxyManifest,
}
_OBJECT: Final = {
    "type": "object",
    "required": ["apiVersion", "kind"],
    "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
}
_HEAD: Final = """\
# The scenario format

<!-- Made by `proxylab schema --reference`; a test holds it against the models. -->

A scenario is one file, `*.lab.yaml`. It holds a document of kind `Scenario` and, separated by `---`, Kubernetes
manifests as a person writes them or `kubectl get -o yaml` prints them: `Service`, `EndpointSlice` (replaces the slices
that the lab derives for its Service), `Pod`, `Node`, `Endpoints`, `List`, and one `KubeProxyConfiguration` for all
proxies. The lab makes the pods of `Deployment`, `ReplicaSet`, `StatefulSet`, `DaemonSet` and `Job`. Objects of other
kinds have no effect; the lab's API serves them. So the output of `helm template` and `kustomize build` is a file of
manifests, too.

For completion in an editor with yaml-language-server, name the schema in the first line of the file:

```yaml
# yaml-language-server: $schema=https://…/lab/proxylab/scenario/schema.json
```

The server checks only the first document of a file against that line. To check the manifests below it too, put
`"yaml.schemas": {"…/lab/proxylab/scenario/schema.json": "*.lab.yaml"}` into the editor's settings.
"""


def json_schema() -> dict[str, Any]:
    """The schema of one document of a scenario file, as JSON Schema draft-07."""
    shapes = {kind: shape_of(declared) for kind, declared in _DOCUMENTS.items()}
    wanted: list[Any] = [(shape, "validation") for shape in shapes.values()]
    names, made = models_json_schema(wanted, ref_template="#/definitions/{model}")
    definitions = {name: _draft_07(definition) for name, definition in _with_words(made["$defs"]).items()}
    for shape in shapes.values():
        definitions[_name(names, shape)].pop("title", None)
    tree: dict[str, Any] = _OBJECT
    for kind, shape in reversed(shapes.items()):
        tree = _when(kind, names[shape, "validation"], tree)
    return {
        "$schema": DRAFT,
        "title": "A document of a proxylab scenario file (*.lab.yaml)",
        **tree,
        "definitions": definitions,
    }


def _with_words(definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions, with every closed set of words inlined.

    For a key with a reference, an editor shows the description of the words instead of the key's.
    """
    words = {f"#/definitions/{name}": each for name, each in definitions.items() if "enum" in each or "const" in each}

    def spelled(schema: Any) -> Any:
        if isinstance(schema, list):
            return [spelled(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        kept = {key: spelled(value) for key, value in schema.items()}
        return words[kept["$ref"]] | _without(kept, "$ref") if kept.get("$ref") in words else kept

    return {name: spelled(each) for name, each in definitions.items() if f"#/definitions/{name}" not in words}


def _name(names: Any, shape: type[Shape]) -> str:
    return str(names[shape, "validation"]["$ref"]).rpartition("/")[2]


def _when(kind: str, then: Any, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Select by kind. A document without a kind is a Scenario, so that an editor offers its keys in an empty file."""
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": then, "else": otherwise}


def _draft_07(schema: Any, *, nullable: bool = True) -> Any:
    """A schema in draft-07, for an editor.

    Draft-07 ignores keys beside ``$ref``. In the scenario format a key without a value is an error, so null is not an
    alternative. A mapping with keys may also look like one by names, so one of several alternatives is enough. Titles
    that repeat a key go.
    """
    if isinstance(schema, list):
        return [_draft_07(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if kept.get("default", "") is None:
        del kept["default"]
    if not nullable and "anyOf" in kept:
        options = [option for option in kept["anyOf"] if option != {"type": "null"}]
        kept = {**kept, "anyOf": options} if len(options) > 1 else {**options[0], **_without(kept, "anyOf")}
    made = {"anyOf" if key == "oneOf" else key: _part(key, value) for key, value in kept.items()}
    if "$ref" in made and len(made) > 1:
        made = {"allOf": [{"$ref": made["$ref"]}], **_without(made, "$ref")}
    return made


def _part(key: str, value: Any) -> Any:
    if key in ("properties", "patternProperties"):
        return {name: _draft_07(each, nullable=False) for name, each in value.items()}
    if key in ("examples", "default", "enum", "const", "required"):
        return value
    return _draft_07(value)


def _without(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def reference_page() -> str:
    """The page, as Markdown."""
    definitions = json_schema()["definitions"]
    sections = [_HEAD]
    for name, path in _reached(definitions):
        sections += _section(path, definitions[name], definitions)
    return "\n".join(sections)


def _reached(definitions: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every mapping of a Scenario, in the order in which a reader meets it, with its path."""
    waiting, met = [("ScenarioDocumentShape", "")], {"ScenarioDocumentShape"}
    while waiting:
        name, path = waiting.pop(0)
        yield name, path
        definition = definitions[name]
        keys = {f".{key}": schema for key, schema in definition["properties"].items()}
        for key, schema in {**keys, "": {"additionalProperties": definition["additionalProperties"]}}.items():
            for inner, suffix in _inner(schema):
                if inner not in met and "properties" in definitions[inner]:
                    met.add(inner)
                    waiting.append((inner, f"{path}{key}{suffix}".removeprefix(".")))


def _inner(schema: Any, suffix: str = "") -> Iterator[tuple[str, str]]:
    """The definitions that a schema refers to, each with the path to it: ``.NAME`` or ``[]``."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], suffix
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _inner(option, suffix)
    if isinstance(items := schema.get("items"), dict):
        yield from _inner(items, f"{suffix}[]")
    if isinstance(entries := schema.get("additionalProperties"), dict):
        yield from _inner(entries, f"{suffix}.NAME")


def _section(path: str, definition: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    required = definition.get("required", ())
    yield f"## {f'`{path}`' if path else 'The document'}\n"
    yield f"{_one_line(definition['description'])}\n"
    yield "| key | meaning | example |"
    yield "| --- | --- | --- |"
    for key, schema in definition["properties"].items():
        needed = " (required)" if key in required else ""
        default = f" Default: `{in_yaml(schema['default'])}`." if schema.get("default") not in (None, {}, []) else ""
        example = next(iter(schema.get("examples", ())), schema.get("default"))
        says = _one_line(schema.get("description") or _of_definition(schema, definitions)).replace("|", "\\|")
        yield f"| `{key}`{needed} | {says}{default} | `{key}: {in_yaml(example)}` |"
    yield ""


def _of_definition(schema: Any, definitions: dict[str, Any]) -> str:
    """The description of a key's mapping. Pydantic omits a key's own description if it is the same."""
    return next(str(definitions[name]["description"]) for name, _ in _inner(schema))


def _one_line(text: str) -> str:
    return " ".join(text.split())
