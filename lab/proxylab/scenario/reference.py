"""``reference_page``: the reference page of the format, Markdown from the JSON Schema with an example for each key."""

from collections.abc import Iterator
from typing import Any, Final

from proxylab.scenario.document import in_yaml
from proxylab.scenario.json_schema import json_schema

__all__ = ["reference_page"]

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
