"""Conformance: what the scenarios of the catalogue say of proxies, by theme, with versions.

A ``Conformance`` is a table. Each column is a ``TestedProxy``: one proxy in one mode on one kernel, with all versions.
Each row is an ``Item``: a probe or step of a scenario. A scenario that could not run, or whose engine fails as
``spec.except`` foresees, is one item without a name of its own.

An item whose ``except`` for the mode or version holds is a known difference: it passes if the proxy does what the
exception expects, and the table keeps the reason. An exception for a network, such as a family, is none: every proxy
meets it.

``encode`` writes the table as JSON::

    apiVersion: proxylab/v1
    kind: ConformanceReport
    columns:
    - engine: kube-proxy/nftables      # as --engine spells it
      version: v1.37.2                 # of the binary; of an embedded engine, the version that it behaves like
      options: []                      # of the command line, besides --engine and --kernel
      kernel: host                     # as --kernel spells it
      release: 6.12.48                 # of that kernel, as uname prints it
      binary:                          # that ran as the proxy; null for an embedded engine, and if it is unknown
        {version: v1.37.2, origin: built from k8s.io/kubernetes@v1.37.2, digest: 999b6aaf524c…, commit: …, dirty: …}
      proxylab: 0.30.0
      scenarios: 171                   # and the digest of their files
      catalogue: 8c0f5d2b7a91
      begun: 2026-11-23 18:40 UTC
    items:
    - scenario: nodeport/on-loopback   # folder and name of its file
      name: "NodePort on 127.0.0.1 from the node reaches the endpoint"
      results: [known]                 # a result for each column: pass | known | fail | inconclusive | skip | null
      reasons: {"mode nftables has no node ports on 127.0.0.1 (KEP-3866)": [0]}  # and the columns of each
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final

from msgspec import field
from msgspec.structs import replace

from proxylab.binary_identity import BinaryIdentity
from proxylab.encoding import MisfitError, Record, encode
from proxylab.engines.engine_names import version_of
from proxylab.errors import ExitCode
from proxylab.report.document import API_VERSION
from proxylab.report.foreign_documents import decode_printable
from proxylab.scenario.words import HOST
from proxylab.verdict.model import Judgement, ProbeVerdict, ScenarioResult, StepVerdict, on_kernel

_KIND: Final = "ConformanceReport"
_SUFFIX: Final = ".lab.yaml"
_DIGITS: Final = 12


class ItemResult(StrEnum):
    """What an item came to. ``known`` is a pass with an exception for the mode or version."""

    PASS = "pass"  # noqa: S105 (no password)
    KNOWN = "known"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIP = "skip"

    @property
    def conforms(self) -> bool:
        """Whether the proxy does what the scenario expects of it."""
        return self in (ItemResult.PASS, ItemResult.KNOWN)


_OF_JUDGEMENTS: Final = {
    Judgement.PASS: ItemResult.PASS,
    Judgement.FAIL: ItemResult.FAIL,
    Judgement.INCONCLUSIVE: ItemResult.INCONCLUSIVE,
    Judgement.SKIP: ItemResult.SKIP,
}


class TestedProxy(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A proxy under test, and the versions of all that took part; the head of the module describes the fields."""

    engine: str
    version: str
    options: tuple[str, ...] = ()
    kernel: str = HOST
    release: str = ""
    binary: BinaryIdentity | None = None
    proxylab: str
    scenarios: int
    catalogue: str
    begun: str

    @property
    def mode(self) -> str:
        return self.engine.rpartition("/")[2]

    @property
    def ran(self) -> str:
        """Which binary ran, in words."""
        return str(self.binary or ("a part of proxylab" if self.engine.startswith("embedded") else "unknown"))

    @property
    def label(self) -> str:
        """The engine's name with its whole version: ``kube-proxy@v1.36.3/nftables on uml``."""
        proxy = self.engine.partition("/")[0].partition("@")[0]
        return on_kernel(f"{proxy}@{self.version}/{self.mode}", self.kernel)


class Item(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A probe or step of a scenario, with a result for each column; ``None`` where it is not about the proxy.

    ``reasons`` has the columns of each reason: why it is a known difference, or why it does not conform.
    """

    scenario: str
    name: str
    results: tuple[ItemResult | None, ...]
    reasons: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def theme(self) -> str:
        """The scenario's folder."""
        return self.scenario.partition("/")[0]

    @property
    def title(self) -> str:
        """The scenario and the item."""
        return f"{self.scenario}: {self.name}" if self.name else self.scenario

    def reason(self, column: int) -> str:
        """Why it is a known difference there, or does not conform; else empty."""
        return next((reason for reason, columns in self.reasons.items() if column in columns), "")


class _WrittenTable(Record, frozen=True, rename="camel", omit_defaults=False):
    api_version: str
    kind: str
    columns: tuple[TestedProxy, ...]
    items: tuple[Item, ...]


class ResultChange(Record, frozen=True):
    """An item whose result differs between two columns, and the reason for the later result."""

    title: str
    before: ItemResult | None
    after: ItemResult | None
    reason: str

    @property
    def is_worse(self) -> bool:
        """Whether it fails now, or is inconclusive, and did not before."""
        bad = (ItemResult.FAIL, ItemResult.INCONCLUSIVE)
        return self.after in bad and self.before not in bad


class Conformance(Record, frozen=True):
    """The table."""

    columns: tuple[TestedProxy, ...]
    items: tuple[Item, ...]

    @property
    def themes(self) -> tuple[str, ...]:
        """The themes, in the order of the items."""
        return tuple(dict.fromkeys(each.theme for each in self.items))

    def counts(self, column: int, theme: str = "") -> "Counter[ItemResult]":
        """How many items of a theme, or of all, came to each result."""
        return Counter(
            result for each in self.items if theme in ("", each.theme) and (result := each.results[column]) is not None
        )

    def having(self, column: int, *results: ItemResult) -> Iterator[Item]:
        """The items with one of these results."""
        return (each for each in self.items if each.results[column] in results)

    def scenarios(self, column: int) -> frozenset[str]:
        """The scenarios that ran."""
        return frozenset(each.scenario for each in self.items if each.results[column] is not None)

    def changes(self, before: int, after: int) -> list[ResultChange]:
        """The items whose results differ between two columns, of the scenarios that ran for both."""
        shared = self.scenarios(before) & self.scenarios(after)
        return [
            ResultChange(each.title, each.results[before], each.results[after], each.reason(after))
            for each in self.items
            if each.scenario in shared and each.results[before] != each.results[after]
        ]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the verdicts; bugs and invalid scenarios prevent verdicts (``report.exit_code``)."""
        found = {result for each in self.items for result in each.results}
        if ItemResult.FAIL in found:
            return ExitCode.FAILED
        return ExitCode.INCONCLUSIVE if ItemResult.INCONCLUSIVE in found else ExitCode.OK

    def like(self, subject: TestedProxy) -> int | None:
        """The column to compare with a subject: of its mode, and if there is one, of its kernel, and of its version.

        Without one of its version it is the nearest before, or else the nearest after.
        """
        wanted = version_of(subject.engine, subject.version)

        def is_before(number: int) -> bool:
            return numbers[number][: len(wanted)] <= wanted  # a minor without a patch has all of them

        alike = [number for number, each in enumerate(self.columns) if each.mode == subject.mode]
        alike = [each for each in alike if self.columns[each].kernel == subject.kernel] or alike
        alike = [each for each in alike if self.columns[each].version == subject.version] or alike
        numbers = {each: version_of(self.columns[each].engine, self.columns[each].version) for each in alike}
        before = [each for each in alike if is_before(each)]
        nearest = (max if before else min)((numbers[each] for each in before or alike), default=())
        return max((each for each in alike if numbers[each] == nearest), default=None)

    def to_json(self) -> str:
        """The document, with a line for each column and item."""
        columns, items = (",\n".join(encode(each).decode() for each in rows) for rows in (self.columns, self.items))
        head = f'"apiVersion":"{API_VERSION}","kind":"{_KIND}"'
        return f'{{{head},\n"columns":[\n{columns}\n],\n"items":[\n{items}\n]}}'


def conforming(counts: Mapping[ItemResult, int]) -> str:
    """How many items conform, of those that were judged: ``34 of 36``."""
    judged = sum(number for result, number in counts.items() if result is not ItemResult.SKIP)
    return f"{sum(number for result, number in counts.items() if result.conforms):,} of {judged:,}"


def sentence(counts: Mapping[ItemResult, int]) -> str:
    """The result in a few words: ``412 of 412 (3 known differences)``."""
    known = counts.get(ItemResult.KNOWN, 0)
    aside = f" ({known:,} known difference{'s' if known > 1 else ''})" if known else ""
    return f"{conforming(counts)}{aside}"


def read(text: str) -> Conformance:
    """The table in a document. Raises ``ValueError``."""
    try:
        document = decode_printable(text.encode(), _WrittenTable)
    except MisfitError as error:
        raise ValueError(f"it is no {_KIND} of this version of proxylab: {error}") from None
    if (document.api_version, document.kind) != (API_VERSION, _KIND):
        raise ValueError(f"it is no {_KIND} of {API_VERSION}")
    width = len(document.columns)
    if any(len(each.results) != width for each in document.items):
        raise ValueError("each of its items must have a result for each column")
    return Conformance(document.columns, document.items)


def catalogue_digest(texts: Mapping[str, bytes]) -> str:
    """What tells this catalogue from others: a digest of its files, by their names."""
    digest = sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:_DIGITS]


def conformance_of(subject: TestedProxy, results: Sequence[ScenarioResult]) -> Conformance:
    """The table of one proxy, from the results of its run, which say the release of its kernel."""
    releases = (each.release for each in results if each.kernel == subject.kernel and each.release)
    items = [item for result in results for item in _items(result)]
    return Conformance((replace(subject, release=next(releases, "")),), tuple(items))


def together(tables: Sequence[Conformance]) -> Conformance:
    """The tables side by side. An item that a table lacks has no result in its columns."""
    width = sum(len(table.columns) for table in tables)
    results: dict[tuple[str, str], list[ItemResult | None]] = {}
    reasons: dict[tuple[str, str], dict[str, tuple[int, ...]]] = {}
    first = 0
    for table in tables:
        for item in table.items:
            row = results.setdefault((item.scenario, item.name), [None] * width)
            row[first : first + len(item.results)] = item.results
            known = reasons.setdefault((item.scenario, item.name), {})
            for reason, columns in item.reasons.items():
                known[reason] = (*known.get(reason, ()), *(first + column for column in columns))
        first += len(table.columns)
    return Conformance(
        tuple(column for table in tables for column in table.columns),
        tuple(
            Item(scenario=scenario, name=name, results=tuple(row), reasons=reasons[scenario, name])
            for (scenario, name), row in sorted(results.items(), key=lambda each: each[0][0])
        ),
    )


def united(table: Conformance) -> Conformance:
    """The table with one column for all that one proxy ran in parts.

    Parts are of the same proxy, kernel, options, versions and catalogue, and have no scenario in common. Then the
    column begins when the first of them did.
    """
    parts: list[list[int]] = []
    for number, column in enumerate(table.columns):
        ran = table.scenarios(number)
        for others in parts:
            if _in_part(table.columns[others[0]]) == _in_part(column) and all(
                ran.isdisjoint(table.scenarios(each)) for each in others
            ):
                others.append(number)
                break
        else:
            parts.append([number])
    part_of = {number: part for part, numbers in enumerate(parts) for number in numbers}
    return Conformance(
        tuple(
            replace(
                table.columns[numbers[0]],
                scenarios=sum(table.columns[each].scenarios for each in numbers),
                begun=min(table.columns[each].begun for each in numbers),
            )
            for numbers in parts
        ),
        tuple(
            replace(
                item,
                results=tuple(
                    next((found for each in numbers if (found := item.results[each]) is not None), None)
                    for numbers in parts
                ),
                reasons={
                    reason: tuple(dict.fromkeys(part_of[each] for each in columns))
                    for reason, columns in item.reasons.items()
                },
            )
            for item in table.items
        ),
    )


def _in_part(column: TestedProxy) -> TestedProxy:
    """What all parts of a column have in common."""
    return replace(column, scenarios=0, begun="")


def _items(result: ScenarioResult) -> Iterator[Item]:
    scenario = "/".join(result.file.removesuffix(_SUFFIX).split("/")[-2:])  # wherever the catalogue is
    case = f"[{result.case}]" if result.case else ""
    for each in result.judged:
        name = each.written.name
        yield _item(scenario, name, *_result(each))
    if result.foreseen is not None:
        yield _item(scenario, case, ItemResult.KNOWN, result.foreseen.because)
    if result.fault is not None:
        yield _item(scenario, case, ItemResult.FAIL, result.fault.message.partition("\n")[0])
    if result.skipped is not None:
        yield _item(scenario, case, ItemResult.SKIP, f"needs {result.skipped.missing}")


def _item(scenario: str, name: str, result: ItemResult, reason: str) -> Item:
    return Item(scenario=scenario, name=name, results=(result,), reasons={reason: (0,)} if reason else {})


def _result(judged: ProbeVerdict | StepVerdict) -> tuple[ItemResult, str]:
    """The result of a probe or step, with its reason."""
    written = judged.written
    result = _OF_JUDGEMENTS[judged.overall]
    if result is not ItemResult.PASS:
        reasons = (reason for each in judged.deciding for reason in each.reasons)
        return result, next(reasons, "")
    known = (each.because for each in written.exceptions if each.when.mode or each.when.version)
    because = next(known, "")
    return (ItemResult.KNOWN, because) if because else (ItemResult.PASS, "")
