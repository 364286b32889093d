"""``check_strictly``: manifests against the Kubernetes API's own schema of a version.

The other checks know the keys that a Service proxy reads; the schema knows every key of every object. The schemas come
with the package kubernetes-validate, which the extra ``proxylab[strict]`` installs, so no download is necessary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from proxylab.cluster.kinds import is_custom
from proxylab.errors import CapabilityError
from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.versions import read_version

_CURE: Final = "install proxylab[strict]: pip install 'proxylab[strict]'"
_OWN_RELEASES: Final = "gateway.networking.k8s.io/"
"""The group whose schemas are not part of Kubernetes' releases."""

_FOLDER: Final = "kubernetes-json-schema/v{}-local-strict/{}.json"


def strict_versions() -> tuple[str, ...]:
    """The versions that have a schema, as ``v1.36``, the oldest first. Raises ``CapabilityError``."""
    return tuple(_releases())


def check_strictly(documents: Iterable[Location], version: str, problems: Problems) -> None:
    """Note everything that the schema of that version refuses and that is not noted yet.

    ``version`` is one of ``strict_versions()``; the manifests may be in Lists. Raises ``CapabilityError``.
    """
    release = _releases()[version]
    for location in documents:
        for each in _objects(location):
            _check(each, version, release, problems)


def _objects(location: Location) -> Iterator[Location]:
    """The objects at a location: the items of a List, or the object itself, if it has a kind and a version."""
    items = location["items"].value
    if location["kind"].value == "List" and isinstance(items, list):
        for index in range(len(items)):
            yield from _objects(location["items"][index])
    elif isinstance(location["kind"].value, str) and isinstance(location["apiVersion"].value, str):
        yield location


def _check(location: Location, version: str, release: str, problems: Problems) -> None:
    kind, api = str(location["kind"].value), str(location["apiVersion"].value)
    if api.startswith(_OWN_RELEASES):
        return
    validator = _validator(release, kind, api)
    if validator is None and is_custom(api):
        return  # only its CustomResourceDefinition has its schema
    if validator is None:
        problems.add(location["kind"].spot, f"Kubernetes {version} has no {kind} in {api}")
        return
    for error in validator.iter_errors(location.value):
        _tell(error, location, version, problems)


def _tell(error: Any, root: Location, version: str, problems: Problems) -> None:
    """Note a ``jsonschema.ValidationError`` in the format's own words."""
    location = root
    for part in error.absolute_path:
        location = location[part]
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = sorted(error.schema["properties"])
        for key in (key for key in error.instance if key not in known):
            what = f"Kubernetes {version} has no such key"
            problems.add(location[key].key, what, allowed=f"allowed: {listed(known)}", word=key, known=known)
    elif error.validator == "required" and isinstance(error.instance, Mapping):
        for key in (key for key in error.validator_value if key not in error.instance):
            problems.add(location[key].key, f"is missing: Kubernetes {version} requires it")
    else:
        wanted = f"{error.validator} {shown(error.validator_value)}"
        problems.add(location.spot, f"the schema of Kubernetes {version} refuses {shown(error.instance)}: {wanted}")


@cache
def _releases() -> dict[str, str]:
    """Versions as authors write them, each with the release in the package."""
    releases = {}
    for release in _package().all_versions():
        major, minor = read_version(release)
        releases[f"v{major}.{minor}"] = release
    return releases


@cache
def _validator(release: str, kind: str, api: str) -> Any:
    """The jsonschema validator for objects of a kind in a release; ``None`` if the release lacks the kind."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - comes with kubernetes-validate
    from referencing import Registry, Resource  # noqa: PLC0415

    # kubernetes-validate names its files so: networking.k8s.io/v1 is networking-v1.
    name = f"{kind.lower()}-" + re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    try:
        schema = _package().schema_contents(_FOLDER.format(release, name), release)
    except FileNotFoundError:
        return None
    definitions = _package().schema_contents(_FOLDER.format(release, "_definitions"), release)
    registry = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


def _package() -> Any:
    try:
        from kubernetes_validate import utils  # noqa: PLC0415 - large, and only --strict needs it
    except ImportError:
        raise CapabilityError("the schemas of Kubernetes, which --strict needs", _CURE) from None
    return utils
