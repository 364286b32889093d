"""The files of manifests that a step applies, and what becomes of the objects that they name.

``kubectl apply`` knows three states of an object: the file, the object as it is, and the file that was applied before.
What the former file had and the new one has no more goes; the rest of the new file is a merge patch. A scenario's own
manifests count as applied when the lab begins. Lists are replaced as a whole, those of ports too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from proxylab.scenario.change import Change, ServiceChange, SliceChange, WorkloadChange
from proxylab.scenario.controllers import WORKLOADS
from proxylab.scenario.document import Document, Location, Marks, Problems
from proxylab.scenario.manifests import Manifests, read_manifests
from proxylab.scenario.parts import Parts

_ALLOWED: Final = "a step applies Services, EndpointSlices, Namespaces and workloads"


def read_applied(
    parts: Parts, documents: Callable[[Location], Iterable[Location]], problems: Problems
) -> tuple[Manifests, ...]:
    """What each step applies. ``documents`` reads those of the files that are named at a place."""
    found: list[Manifests] = []
    for index, step in enumerate(parts.steps):
        location = parts.location["spec"]["steps"][index]["change"]["apply"]
        if step.change is None or not step.change.apply:
            found.append(Manifests())
            continue
        manifests = read_manifests(documents(location), None, problems)
        _refuse_others(manifests, location, problems)
        _refuse_twice(step.change, manifests, location, problems)
        found.append(manifests)
    return tuple(found)


def _refuse_twice(change: Change, manifests: Manifests, location: Location, problems: Problems) -> None:
    """Note the objects that a patch of the step changes as well."""
    applied = [("Service", *key) for key in manifests.locations]
    applied += [("EndpointSlice", *key) for key in manifests.slice_spots]
    applied += [(kind, namespace, name) for namespace, name, kind in manifests.workloads]
    patches: Mapping[str, Sequence[ServiceChange | SliceChange | WorkloadChange]] = {
        "Service": change.services,
        "EndpointSlice": change.slices,
    }
    for kind, namespace, name in applied:
        if (namespace, name) in {each.id for each in patches.get(kind, change.workloads)}:
            what = f"changes {kind} {namespace}/{name} twice, by a patch and by a file"
            problems.add(location.spot, what, allowed="use one of the two")


def _refuse_others(manifests: Manifests, location: Location, problems: Problems) -> None:
    """Note the objects that do not change in a step; those that no proxy reads only by a warning."""
    for kind, found in (("Pod", manifests.pods), ("Node", manifests.nodes)):
        for name, each in found.items():
            spot = each.location["kind"].spot
            problems.add(
                spot, f"a step applies no {kind}, such as {name}", allowed=f"write it into spec.{kind.lower()}s"
            )
    mirrored = manifests.slices.keys() - manifests.slice_spots.keys()
    for namespace, name in sorted(mirrored):
        what = f"a step applies no Endpoints, as those of {namespace}/{name}"
        problems.add(location.spot, what, allowed="write an EndpointSlice")
    for kept in manifests.kept.values():
        if kept.kind not in WORKLOADS:
            what = f"{kept.kind} {kept.name} changes nothing in this step"
            problems.warn(location.spot, what, allowed=_ALLOWED)


def without_former(base: Location, former: Location, wanted: Location) -> Location:
    """The object at ``base`` without what ``former`` says and ``wanted`` does not."""
    marks: dict[int, Mapping[str | int, Marks]] = {}
    value = _kept(base, former, wanted, marks)
    return Location(Document(value, base.key.position, {**base.document.marked.marks, **marks}, base.key.path))


def _kept(base: Location, former: Location, wanted: Location, marks: dict[int, Mapping[str | int, Marks]]) -> object:
    value = base.value
    if not all(isinstance(each.value, dict) for each in (base, former, wanted)) or not isinstance(value, dict):
        return value
    keys: Sequence[str] = [key for key in value if wanted[key].exists or not former[key].exists]
    made = {key: _kept(base[key], former[key], wanted[key], marks) for key in keys}
    marks[id(made)] = {key: Marks(base[key].key.position, base[key].spot.position) for key in keys}
    return made
