"""``proxylab get``: list the objects of a lab's cluster, as kubectl does (see ``proxylab.report.listing``)."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, Never

import click
from click.shell_completion import CompletionItem

from proxylab.cli.case_option import CaseId, choose_case
from proxylab.cli.chosen_lab import KubernetesNamespace, LabName, check_namespace, lab_words, standing, with_file
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cluster.documents import document_of, labels_of
from proxylab.cluster.objects import KubeObject, Namespace, Unstructured
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.selectors import Selection
from proxylab.errors import ExitCode
from proxylab.plan.assembly import lay_out
from proxylab.plan.model import Plan
from proxylab.plan.topology import draw
from proxylab.protocol.standing_labs import ListObjects, ObjectList, Remember
from proxylab.report.listing import KINDS, ListedKind, kind_named, listing, of_kind
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline

_ANSWER_SECONDS: Final = 30.0
_PAUSE: Final = 0.5
"""Seconds between two looks of --watch."""

_NUMBER_OF_1_2: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+|0o[0-7]+")


def complete_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(kind.plural) for kind in KINDS if kind.plural.startswith(incomplete)]


@click.command("get", short_help="List nodes, pods, Services or endpoints of a lab.")
@takes
def command(
    *,
    words: Annotated[tuple[str, ...], lab_words("[FILE] KIND[,KIND…] [NAME]", complete_kinds)],
    selector: Annotated[
        str | None,
        option(
            "-l",
            "--selector",
            metavar="SELECTOR",
            help="Only objects with these labels, as in app=echo,tier!=db.",
        ),
    ],
    all_namespaces: Annotated[
        bool,
        option("-A", "--all-namespaces", is_flag=True, help="The objects of all namespaces, each with its own."),
    ],
    output: Annotated[
        str,
        option(
            "-o",
            "--output",
            type=click.Choice(["text", "wide", "yaml", "json", "name"]),
            default="text",
            show_default=True,
        ),
    ],
    watch: Annotated[bool, option("-w", "--watch", is_flag=True, help="Print each line that changes, until Ctrl-C.")],
    name: LabName,
    namespace: KubernetesNamespace,
    case_id: CaseId,
) -> ExitCode:
    """As kubectl does, list the nodes, pods, services, endpoints, workloads or other objects of the standing lab.

    Several kinds are separated by commas, as in svc,pods; `all` stands for pods, services and workloads. Without
    --namespace the objects of all namespaces are listed.

    With FILE, list the objects with which that scenario would start; no lab is built.

    Example: proxylab get scenarios/clusterip/from-a-pod.lab.yaml pods -o wide
    """
    if watch and (output not in ("text", "wide") or with_file(words)[0] is not None):
        raise click.UsageError("-w: watches tables of a standing lab; leave FILE out, and -o but for wide")

    def look() -> _Found:
        return _looked(words, name, case_id, None if all_namespaces else namespace, selector)

    def tables_of(now: _Found) -> list[list[str]]:
        wide, several = output == "wide", len(now.things) > 1
        return [
            listing(kind, things, now.cluster.objects, wide=wide, several=several, with_namespace=all_namespaces)
            for kind, things in now.things.items()
        ]

    first = look()
    cluster, found, wanted = first.cluster, first.things, first.wanted
    kinds = tuple(found)
    if wanted is not None and not any(found.values()):
        known = ", ".join(each.name for kind in kinds for each in of_kind(kind, cluster.objects))
        among = " and ".join(kind.plural for kind in kinds)
        raise click.UsageError(f"NAME: no {wanted!r} among the {among}; there are {known or 'none'}")
    match output:
        case "name":
            echo("".join(f"{kind.singular}/{each.name}\n" for kind in kinds for each in found[kind]), nl=False)
        case "yaml" | "json":
            echo(written(_document(found, cluster, single=wanted is not None), output), nl=False)
        case _:
            tables = tables_of(first)
            echo("\n\n".join("\n".join(each) for each in tables))
            if watch:
                _follow(tables, lambda: tables_of(look()))
    return ExitCode.OK


def _looked(
    words: tuple[str, ...], name: str | None, case_id: str | None, namespace: str | None, selector: str | None
) -> "_Found":
    """What the words of the command line name, as the cluster has it now."""
    with the_cluster(words, name, case_id, namespace) as cluster:
        kinds, wanted = kinds_of(cluster.words, cluster.objects)
        found = {kind: of_kind(kind, cluster.chosen, wanted) for kind in kinds}
    if selector is not None:
        if wanted is not None:
            raise click.UsageError("-l: give a NAME or a selector, not both")
        fits = _selecting(selector)
        found = {kind: [each for each in things if fits(each)] for kind, things in found.items()}
    return _Found(cluster, found, wanted)


def _follow(tables: Sequence[Sequence[str]], look: Callable[[], Sequence[Sequence[str]]]) -> Never:
    """Print each line of the tables that is new or changes, until Ctrl-C; the lab serves others between two looks."""
    while True:
        time.sleep(_PAUSE)
        known = {tuple(line.split()) for table in tables for line in table}
        tables = look()
        for line in (line for table in tables for line in table[1:] if tuple(line.split()) not in known):
            echo(line)


def _selecting(selector: str) -> Callable[[KubeObject], bool]:
    """Whether an object's labels match a selector, as the API reads it. Raises ``click.UsageError``."""
    try:
        selection = Selection.of(selector, "")
    except Refusal as refusal:
        raise click.UsageError(f"-l: {refusal.message}; write a label selector, as in app=web,tier!=db") from None
    return lambda thing: selection.accepts(labels_of(thing), {})


class _Found(NamedTuple):
    """What is listed: the objects of each kind, in their cluster, and the name that was asked for."""

    cluster: "_Cluster"
    things: Mapping[ListedKind, Sequence[KubeObject]]
    wanted: str | None


class _Cluster:
    """The objects of the standing lab, or those with which FILE would start."""

    def __init__(
        self,
        words: tuple[str, ...],
        scenario: Scenario,
        objects: Sequence[KubeObject],
        listed: ObjectList,
        began: float,
        namespace: str | None = None,
    ) -> None:
        self.words = words
        self._namespace = namespace
        self.scenario = scenario
        self.objects = objects
        self.began = began
        self._revisions = dict(zip((each.key for each in listed.objects), listed.revisions, strict=True))

    @property
    def chosen(self) -> Sequence[KubeObject]:
        """The objects of the namespace that was asked for, and those of no namespace; or all."""
        if self._namespace is None:
            return self.objects
        return [each for each in self.objects if each.key.namespace in ("", self._namespace)]

    @property
    def plan(self) -> Plan:
        """The lab's plan."""
        return draw(self.scenario)

    def document(self, thing: KubeObject) -> dict[str, Any]:
        """The document of an object, as the lab's API server shows it."""
        since = datetime.fromtimestamp(self.began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return document_of(thing, self._revisions.get(thing.key, 1), since)


@contextmanager
def the_cluster(
    words: tuple[str, ...], name: str | None, case_id: str | None, namespace: str | None = None
) -> Iterator[_Cluster]:
    """The cluster of FILE or of the standing lab, with the words after FILE, and the namespace that was asked for."""
    file, rest = with_file(words)
    if file is not None:
        scenario = choose_case(file, case_id)
        objects = lay_out(scenario).objects
        check_namespace(namespace, _namespaces(objects))
        yield _Cluster(rest, scenario, objects, ObjectList((), ()), 0.0, namespace)
        return
    with standing(name) as connection:
        record = connection.request(Remember(), Deadline.after(_ANSWER_SECONDS))
        listed = connection.request(ListObjects(), Deadline.after(_ANSWER_SECONDS))
    check_namespace(namespace, _namespaces(listed.objects))
    yield _Cluster(rest, record.scenario, listed.objects, listed, record.began, namespace)


def _namespaces(objects: Iterable[KubeObject]) -> Iterator[str]:
    for each in objects:
        yield each.name if isinstance(each, Namespace) else each.key.namespace


def kind_of(words: tuple[str, ...], objects: Sequence[KubeObject]) -> tuple[ListedKind, str | None]:
    """KIND and NAME, which may be written ``KIND/NAME``. Raises ``click.UsageError``."""
    (kind, *further), wanted = kinds_of(words, objects)
    if further:
        raise click.UsageError(f"KIND: name one kind, {kind.plural} or {further[0].plural}")
    return kind, wanted


def kinds_of(words: tuple[str, ...], objects: Sequence[KubeObject]) -> tuple[tuple[ListedKind, ...], str | None]:
    """The kinds of ``KIND,KIND``, each once, and NAME, which may be written ``KIND/NAME``. Raises ``UsageError``."""
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if not words or len(words) > 2:
        raise click.UsageError(f"KIND and NAME: give one of {', '.join(kind.plural for kind in KINDS)}, then a name")
    kinds: dict[str, ListedKind] = {}
    workloads = dict.fromkeys(each.plural for each in objects if isinstance(each, Unstructured) and _has_pods(each))
    everything = ",".join(("pods", "services", *workloads))
    for word in ",".join(everything if each == "all" else each for each in words[0].split(",")).split(","):
        kind = kind_named(word, objects)
        if kind is None:
            raise click.UsageError(f"KIND: there is no {word!r}; there are {', '.join(kind.plural for kind in KINDS)}")
        kinds.setdefault(kind.plural, kind)
    return tuple(kinds.values()), words[1] if words[1:] else None


def _has_pods(thing: Unstructured) -> bool:
    return thing.api_version.partition("/")[0] in ("apps", "batch")


def _document(found: Mapping[ListedKind, Sequence[KubeObject]], cluster: _Cluster, *, single: bool) -> dict[str, Any]:
    """One object, or a List. Endpoints appear as EndpointSlices: the lab's API has no Endpoints objects."""
    shown: list[KubeObject] = []
    for kind, objects in found.items():
        names = {(each.key.namespace, each.name) for each in objects}
        slices = of_kind(KINDS[-1], cluster.objects) if kind.plural == "endpoints" else []
        shown += [each for each in slices if (each.key.namespace, getattr(each, "service", "")) in names]
        shown += objects if kind.plural != "endpoints" else []
    items = [cluster.document(each) for each in shown]
    if single and len(items) == 1:
        return items[0]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def written(document: dict[str, Any], output: str, **style: Any) -> str:
    """A document as ``json`` or ``yaml``, with a final newline. ``style`` are options of PyYAML."""
    if output == "json":
        return json.dumps(document, indent=4) + "\n"
    import yaml  # noqa: PLC0415 - the import costs 10 ms, and only YAML output needs it

    # PyYAML writes YAML 1.1, and leaves a text without quotes that is a number in 1.2 only.
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_OF_1_2, list("-+0123456789"))
    return str(yaml.dump(document, Dumper=dumper, **style))
