"""Several runs as one: shards of a run, or runs side by side, with a column for each engine or version.

A run comes as its JSON document (``report.document``), as the JUnit XML that pytest writes, or as a page
(``report.html``). ``proxylab merge`` reads the files.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree

from msgspec import Struct
from msgspec.structs import replace

from proxylab.binary_identity import BinaryIdentity, identity_lines
from proxylab.encoding import MisfitError, Record
from proxylab.errors import ExitCode
from proxylab.report.document import API_VERSION, KIND
from proxylab.report.exit_code import exit_code
from proxylab.report.foreign_documents import decode_printable
from proxylab.report.html import PageEntry
from proxylab.report.matrix import Painter, result_table
from proxylab.report.run_text import summary_line
from proxylab.report.shards import missing_shards
from proxylab.report.unmet_rules import by_engine, coverage_document
from proxylab.scenario.words import HOST, Position
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import UNRESOLVED, Judgement, Verdict, on_kernel
from proxylab.verdict.rule_coverage import RuleCoverage


class _WrittenFault(Record, frozen=True, rename="camel"):
    exit_code: ExitCode
    message: str


class _Skip(Record, frozen=True):
    missing: str
    cure: str


class _WrittenItem(Struct, frozen=True):
    """A probe or step in a document; keys that no table needs are left out."""

    name: str
    position: Position
    judgement: Judgement
    verdicts: Sequence[Verdict]

    @property
    def overall(self) -> Judgement:
        """As in ``ProbeVerdict``."""
        return self.judgement


class _Scenario(Struct, frozen=True):
    """A scenario in a document; a ``report.exit_code.AnyResult``."""

    file: str
    engine: str
    case: str
    judgement: Judgement | None
    seconds: float
    skipped: _Skip | None
    fault: _WrittenFault | None
    foreseen: Mapping[str, Any] | None
    probes: Sequence[_WrittenItem]
    steps: Sequence[_WrittenItem]
    kernel: str = HOST
    release: str | None = None
    binary: Mapping[str, Any] | None = None
    rules: RuleCoverage | None = None

    @property
    def engine_on_kernel(self) -> str:
        """As in ``ScenarioResult``."""
        return on_kernel(self.engine, self.kernel)

    @property
    def overall(self) -> Judgement | None:
        """As in ``ScenarioResult``."""
        return self.judgement

    @property
    def judged(self) -> Sequence[_WrittenItem]:
        """As in ``ScenarioResult``."""
        return [*self.probes, *self.steps]


class _Document(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    scenarios: Sequence[_Scenario]
    shard: str | None = None


class MergedRun(Struct, frozen=True):
    """Documents in one: as JSON, as text, and their exit code."""

    scenarios: Sequence[_Scenario]
    raw: Sequence[Mapping[str, Any]]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run with all these results."""
        return exit_code(self.scenarios)

    def to_json(self) -> str:
        """A document with the scenarios of all."""
        counts = Counter(each.overall for scenario in self.scenarios for each in scenario.judged)
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "exitCode": int(self.exit_code),
            "shard": None,
            "counts": {judgement.value: counts[judgement] for judgement in Judgement},
            "scenarios": self.raw,
            "rules": {engine: coverage_document(found) for engine, found in by_engine(self.scenarios).items()} or None,
        }
        return json.dumps(document, indent=2, ensure_ascii=False)

    def lines(self, paint: Painter = lambda word, _: word, width: int = WIDTH) -> list[str]:
        """A table of scenarios and engines; each probe that did not pass, with its engines; and a summary."""
        lines = result_table(self.scenarios, paint, width)
        bad: dict[str, list[str]] = {}
        for title, words in (each for scenario in self.scenarios for each in _bad(scenario, paint)):
            bad.setdefault(title, []).extend(wrapped(words, "  ", " " * 4, width))
        for title, found in bad.items():
            lines += ["", title, *found]
        ran = identity_lines(
            (each.engine, BinaryIdentity.from_document(each.binary) if each.binary else None) for each in self.scenarios
        )
        closing = [part for line in (*ran, summary_line(self.scenarios)) for part in wrapped(line, "", "  ", width)]
        return [*lines, *([""] if lines else []), *closing]


def _bad(scenario: _Scenario, paint: Painter) -> Iterator[tuple[str, str]]:
    """The probes and steps that did not pass, and the error: where and what, and the observation on the engine."""
    where = f"[{on_kernel(scenario.engine, scenario.kernel)}]"
    for each in scenario.judged:
        if each.judgement in UNRESOLVED:
            deciding = (verdict for verdict in each.verdicts if verdict.judgement is each.judgement)
            reasons = (reason for verdict in deciding for reason in verdict.reasons)
            yield (
                f"{each.position}: {each.name}",
                f"{paint(each.judgement, each.judgement)} {where}: {next(reasons, '')}",
            )
    if scenario.fault is not None:
        message, _, _ = scenario.fault.message.partition("\n")
        yield scenario.file, f"{paint('error', Judgement.FAIL)} {where}: {message}"


def merged_documents(texts: Mapping[str, str]) -> MergedRun:
    """The runs in JSON documents, by their labels. Raises ``ValueError``."""
    documents: dict[str, _Document] = {}
    for label, text in texts.items():
        try:
            documents[label] = decode_printable(text.encode(), _Document)
        except MisfitError as error:
            raise ValueError(f"{label}: {error}") from None
        if (documents[label].api_version, documents[label].kind) != (API_VERSION, KIND):
            raise ValueError(f"{label}: it is no {KIND} of {API_VERSION}")
    _hold_all([each.shard for each in documents.values()])
    columns = _Columns.of(
        _MergedRow(label, each.file, each.case, each.engine, each.kernel, each.release or "")
        for label, found in documents.items()
        for each in found.scenarios
    )
    scenarios: list[_Scenario] = []
    raw: list[Mapping[str, Any]] = []
    for label, document in documents.items():
        for known, each in zip(document.scenarios, json.loads(texts[label])["scenarios"], strict=True):
            engine, kernel = columns.engine(label, known.engine), columns.kernel(label, known.kernel)
            scenarios.append(replace(known, engine=engine, kernel=kernel))
            raw.append({**each, "engine": engine})
    return MergedRun(scenarios, raw)


class _MergedRow(Struct, frozen=True):
    """A scenario of a run on a kernel: ``HOST``, or another one with its release, if a lab was built."""

    label: str
    file: str
    case: str
    engine: str
    kernel: str
    release: str


class _Columns(Struct, frozen=True):
    """The names of engines and kernels in several runs.

    Kernels have their releases. Engines have the labels of their runs where two runs have the same scenario on the same
    engine and kernel.
    """

    releases: Mapping[tuple[str, str], str]
    labelled: bool

    @classmethod
    def of(cls, rows: Iterable[_MergedRow]) -> "_Columns":
        """Look at what ran."""
        every = list(rows)
        releases = {(row.label, row.kernel): row.release for row in every if row.release and row.kernel != HOST}
        bare = cls(releases, labelled=False)
        ids = {(row.label, row.file, row.case, row.engine, bare.kernel(row.label, row.kernel)) for row in every}
        return cls(releases, labelled=len({each[1:] for each in ids}) < len(ids))

    def engine(self, label: str, engine: str) -> str:
        """The engine's name in a run."""
        return f"{engine} ({label})" if self.labelled else engine

    def kernel(self, label: str, kernel: str) -> str:
        """The kernel's name in a run."""
        return f"{kernel} {self.releases.get((label, kernel), '')}".rstrip()


def _hold_all(shards: Iterable[str | None]) -> None:
    """Raise ``ValueError`` if a shard of the run is missing: the others look green without it."""
    missing = missing_shards([each for each in shards if each])
    if missing:
        raise ValueError(f"shard {', '.join(missing)} is missing; merge the outputs of all shards")


_NUMBERS: Final = ("tests", "failures", "errors", "skipped")


def merged_junit(texts: Mapping[str, str]) -> tuple[str, bool]:
    """The test suites of JUnit files by label, as one file, and whether none failed. Raises ``ValueError``."""
    whole = ElementTree.Element("testsuites", name="proxylab")
    for label, text in texts.items():
        try:
            root = ElementTree.fromstring(text)  # noqa: S314 - the user's own runs wrote it
        except ElementTree.ParseError as error:
            raise ValueError(f"{label}: {error}") from None
        for suite in root.iter("testsuite"):
            suite.set("name", label)
            whole.append(suite)
    _hold_all([each.get("value") for each in whole.iterfind("testsuite/properties/property[@name='shard']")])
    for name in _NUMBERS:
        whole.set(name, str(sum(int(suite.get(name, 0)) for suite in whole)))
    whole.set("time", f"{sum(float(suite.get('time', 0)) for suite in whole):.3f}")
    text = ElementTree.tostring(whole, encoding="unicode", xml_declaration=True)
    return text, whole.get("failures") == whole.get("errors") == "0"


def merged_entries(pages: Mapping[str, Sequence[PageEntry]]) -> list[PageEntry]:
    """The entries of pages, by label, for one page."""
    columns = _Columns.of(  # the engine of a heading names its kernel, too
        _MergedRow(label, each.heading.file, each.heading.case, "", each.heading.engine, each.heading.kernel)
        for label, entries in pages.items()
        for each in entries
    )
    found = []
    for label, entries in pages.items():
        for each in entries:
            engine = columns.engine(label, columns.kernel(label, each.heading.engine))
            found.append(replace(each, heading=replace(each.heading, engine=engine, kernel="")))
    return found


def merged_about(abouts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts about several runs: each value once. Raises ``ValueError`` if a shard is missing."""
    _hold_all([each.get("shard") for each in abouts])
    labels = dict.fromkeys(label for about in abouts for label in about if label != "shard")
    return {label: ", ".join(dict.fromkeys(about[label] for about in abouts if label in about)) for label in labels}
