"""The format for editors and readers: JSON Schema draft-07, and the reference page that is made from it.

Both are written from the declarations (``keys``). A scenario file is a stream of documents, and an editor checks each
of them against the whole schema. So the schema first selects by kind; a Kubernetes kind that the lab only keeps needs
only ``apiVersion`` and ``kind``. The page is Markdown, with an example for each key.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, to_builtins

from proxylab.scenario.configuration import KubeProxyManifest
from proxylab.scenario.document import in_yaml
from proxylab.scenario.keys import (
    Between,
    Declared,
    DeclaredKey,
    Manifest,
    NotEmpty,
    Read,
    WrittenAs,
    attached,
    bare,
    declared_keys,
    is_declared,
    key_field,
    other_keys,
)
from proxylab.scenario.services import ServiceManifest
from proxylab.scenario.spec import ScenarioDocument
from proxylab.scenario.workloads import EndpointSliceManifest, EndpointsManifest, NodeManifest, PodManifest

DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_DOCUMENTS: Final[Mapping[str, type[Declared]]] = {
    "Scenario": ScenarioDocument,
    "Service": ServiceManifest,
    "EndpointSlice": EndpointSliceManifest,
    "Endpoints": EndpointsManifest,
    "Pod": PodManifest,
    "Node": NodeManifest,
    "KubeProxyConfiguration": KubeProxyManifest,
}
_OBJECT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["apiVersion", "kind"],
    "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
}
_TEXT: Final = {"type": "string"}
_NULL: Final = {"type": "null"}
_TYPES: Final[Mapping[Any, Mapping[str, str]]] = {
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    NoneType: _NULL,
}
"""All but these an author writes as text."""

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
    tree = _OBJECT
    for kind, declared in reversed([*_DOCUMENTS.items()]):
        tree = _when(kind, _reference(declared), tree)
    return {
        "$schema": DRAFT,
        "title": "A document of a proxylab scenario file (*.lab.yaml)",
        **tree,
        "definitions": {name: _definition(declared) for declared, name in _names().items()},
    }


def _when(kind: str, then: Any, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Select by kind. A document without a kind is a Scenario, so that an editor offers its keys in an empty file."""
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": then, "else": otherwise}


def _records(hints: Iterable[Any]) -> set[type[Declared]]:
    """Every mapping of the format that an author may write in values with these annotations."""
    found: set[type[Declared]] = set()
    waiting = list(hints)
    while waiting:
        hint = _as_written(waiting.pop())
        if is_declared(hint) and hint not in found:
            found.add(hint)
            waiting += [key.hint for key in declared_keys(hint)]
            others = other_keys(hint)
            waiting += [others.hint] if others else []
        waiting += get_args(hint)
    return found


def _as_written(hint: Any) -> Any:
    """The type of what an author writes for a value of that annotation."""
    written = [each.written for each in getattr(hint, "__metadata__", ()) if isinstance(each, Read | WrittenAs)]
    given = [each for each in written if each is not None]
    return _as_written(given[-1]) if given else bare(hint)


@cache
def _names() -> Mapping[type[Declared], str]:
    """The name of each record's definition: with its module, where records of several modules share one."""
    names = {each: each.__name__.lstrip("_") for each in _records(_DOCUMENTS.values())}
    shared = Counter(names.values())
    return {
        each: name if shared[name] == 1 else f"{each.__module__.rpartition('.')[2]}.{name}"
        for each, name in sorted(names.items(), key=lambda named: (named[1], named[0].__module__))
    }


def _reference(declared: type[Declared]) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{_names()[declared]}"}


def _definition(declared: type[Declared]) -> dict[str, Any]:
    """The schema of a mapping: its keys, which of them an author must write, and what other keys it may have."""
    keys, others = declared_keys(declared), other_keys(declared)
    properties = {key.alias: _property(key) for key in keys}
    allows_more = False
    if issubclass(declared, Manifest):
        allows_more = declared.loose
        properties |= {alias: {"description": text} for alias, text in declared.without_effect.items()}
    made: dict[str, Any] = {"type": "object", "description": cleandoc(declared.__doc__ or ""), "properties": properties}
    if required := [key.alias for key in keys if key.default is NODEFAULT and key.key.implied is None]:
        made["required"] = required
    if others and others.pattern:
        made["patternProperties"] = {others.pattern: _schema(others.hint)}
    if not allows_more:
        made["additionalProperties"] = _schema(others.hint) if others and not others.pattern else False
    return made


def _property(key: DeclaredKey) -> dict[str, Any]:
    """The schema of a key's value. In the scenario format a key without a value is an error, so null is no choice.

    Draft-07 ignores keys beside ``$ref``.
    """
    made = _schema(key.hint)
    options = [each for each in made.get("anyOf", ()) if each != _NULL]
    if options:
        made = {**_without(made, "anyOf"), **(options[0] if len(options) == 1 else {"anyOf": options})}
    if "$ref" in made:
        made = {"allOf": [{"$ref": made["$ref"]}]}
    made["description"] = key.key.text
    # An editor offers a default that says something as an author writes it: not an empty list, nor milliseconds.
    default, otherwise = key.default, any(isinstance(each, Read | WrittenAs) for each in attached(key.hint))
    if not otherwise and default not in (NODEFAULT, None, "", (), {}) and not isinstance(default, Struct):
        made["default"] = to_builtins([*default] if isinstance(default, tuple) else default)
    return made | ({"examples": key.key.examples} if key.key.examples else {})


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of what an author writes for a value of that annotation."""
    made = _type_schema(_as_written(hint))
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(each, Between):
            made |= {"minimum": each.low, "maximum": each.high}
        elif isinstance(each, NotEmpty) and "type" in made:
            made |= {{"string": "minLength", "array": "minItems", "object": "minProperties"}[made["type"]]: 1}
    return made


def _type_schema(hint: Any) -> dict[str, Any]:
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            options: list[dict[str, Any]] = []
            for each in map(_schema, arguments):
                options += [] if each in options else [each]
            return {"anyOf": options} if len(options) > 1 else options[0]
        case origin if origin in (tuple, list) and not key_field(arguments[0]):
            return {"type": "array", "items": _schema(arguments[0])}
        case origin if origin in (tuple, Mapping, dict):
            return {"type": "object", "additionalProperties": _schema(arguments[origin is not tuple]) or True}
    if is_declared(hint):
        return _reference(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"type": "string", "enum": list(map(str, hint)), "description": cleandoc(hint.__doc__ or "")}
    return {} if hint is Any else dict(_TYPES.get(hint, _TEXT))


def _without(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def reference_page() -> str:
    """The page, as Markdown."""
    definitions = json_schema()["definitions"]
    sections = [_HEAD]
    for name, path in _reached(definitions):
        sections += _section(path, definitions[name])
    return "\n".join(sections)


def _reached(definitions: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every mapping of a Scenario, in the order in which a reader meets it, with its path."""
    waiting, met = [("ScenarioDocument", "")], {"ScenarioDocument"}
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


def _section(path: str, definition: dict[str, Any]) -> Iterator[str]:
    required = definition.get("required", ())
    yield f"## {f'`{path}`' if path else 'The document'}\n"
    yield f"{_one_line(definition['description'])}\n"
    yield "| key | meaning | example |"
    yield "| --- | --- | --- |"
    for key, schema in definition["properties"].items():
        needed = " (required)" if key in required else ""
        default = f" Default: `{in_yaml(schema['default'])}`." if schema.get("default") not in (None, {}, []) else ""
        example = next(iter(schema.get("examples", ())), schema.get("default"))
        says = _one_line(schema["description"]).replace("|", "\\|")
        yield f"| `{key}`{needed} | {says}{default} | `{key}: {in_yaml(example)}` |"
    yield ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
