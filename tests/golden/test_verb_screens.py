"""What each verb shows, as files for a terminal of 80 columns without colour.

On other terminals the words are the same: colour adds nothing but colour, and lines fit. What ``--help`` prints is in
docs/reference/cli.md, what the verbs of a standing lab print is in ``standing_lab``, and a run is in ``run.txt``.

Write the files anew with ``pytest tests/golden --update-golden``, then look at them with ``cat`` in such a terminal.
"""

import functools
import itertools
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from audits import RIGHT, answer, asked, audit_of, promised, wrong
from benched import benched, engine
from conformance_tables import BROKEN, RELEASE
from kube_proxies import program
from kubectl_clusters import k3s
from msgspec.structs import replace
from probed import RUN
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from screen_lab import ScreenSession, record

from proxylab.binaries.binary import CONTROL_PLANE, COREDNS, KUBE_PROXY, Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, offers
from proxylab.binaries.programs import ProgramHere
from proxylab.binary_identity import BinaryIdentity
from proxylab.capability import Capability
from proxylab.cli import main
from proxylab.cli.capture import frame_text
from proxylab.cli.doctor import doctor_lines
from proxylab.cli.engines import engines_lines
from proxylab.cli.kernels import kernels_lines
from proxylab.cli.verbs import VERBS
from proxylab.errors import CapabilityError
from proxylab.features.audit.findings import to_lines
from proxylab.features.audit.senders import SenderKind
from proxylab.features.bench.bench_text import comparison_lines
from proxylab.features.bench.bench_text import to_lines as to_bench_lines
from proxylab.features.bench.comparison import compare
from proxylab.features.gate.gate_text import Gate, against_release, gate_lines
from proxylab.features.gate.touched import touched
from proxylab.features.migrate.certificate import certificate_of
from proxylab.features.migrate.certificate_text import to_lines as certificate_lines
from proxylab.guest.kernels import Kernel
from proxylab.protocol.messages import Ready
from proxylab.protocol.standing_labs import CapturedFrame
from proxylab.report.document import to_json
from proxylab.scenario.expect import Preserved
from proxylab.traffic.frame_line import frame_line
from proxylab.verdict.rule_coverage import RuleCoverage, RuleKind

FILES = Path(__file__).parent / "screens"
OF_RUNS = {"run"}  # tests/golden/test_run_screens.py

ECHO = "echo.lab.yaml"

TYPED: dict[str, tuple[str, ...]] = {
    "apply-none-stands": ("apply", "-f", ECHO),
    "check": ("check", ECHO),
    "check-mistakes": ("check", "mistaken.lab.yaml"),
    "conformance": ("conformance", "--from", "release.json", "--from", "build.json"),
    "conformance-compare": ("conformance", "--from", "build.json", "--compare", "release.json"),
    "diff": ("diff", ECHO, "--engines", "embedded/iptables,embedded@v1.23/iptables"),
    "down-none-stands": ("down",),
    "exec-what": ("exec", "debug"),
    "get-what": ("get", ECHO, "cats"),
    "expected": ("expected", ECHO, "an outside host keeps its address"),
    "graph": ("graph", ECHO),
    "graph-probe": ("graph", ECHO, "--probe", "an outside host keeps its address"),
    "import": ("import", "dump.json", "-o", "mine.lab.yaml"),
    "init": ("init", "mine.lab.yaml"),
    "judge": ("judge", "bundle"),
    "kubeconfig-none-stands": ("kubeconfig",),
    "kubectl-none-stands": ("kubectl", "--", "get", "pods"),
    "logs-whose": ("logs", ECHO, "node-x"),
    "merge": ("merge", "v1.36.json", "v1.37.json"),
    "mutate-broken": ("mutate", ECHO, "--rule", "KUBE-SEP"),
    "mutate-refused": ("mutate", ECHO, "--engine", "kube-proxy/iptables"),
    "plan": ("plan", ECHO),
    "probe": ("probe", ECHO, "debug", "echo", "--node", "node-a"),
    "probe-rejected": ("probe", ECHO, "debug", "echo", "--engine", "embedded@v1.23/iptables"),
    "rules": ("rules", ECHO),
    "run-failed": ("run", ECHO, "--no-bundles"),
    "semantics": ("semantics", "clusterIP=None", "untranslated"),
    "shell-where": ("shell", ECHO),
    "trace": ("trace", ECHO, "debug", "echo", "--node", "node-a"),
    "trace-rejected": ("trace", ECHO, "debug", "echo", "--engine", "embedded@v1.23/iptables"),
    "up-misnamed": ("up", ECHO, "--name", "Not A Name"),
    "wrong-engine": ("run", ECHO, "--engine", "kube-proxy/ebpf"),
    "wrong-verb": ("traec",),
}


def examined(width: int) -> list[str]:
    found = (
        Capability(name="veth pairs", found="made one", works=True, cost="no lab", cure="", required=True),
        Capability(
            name="dummy devices",
            found="the kernel refused to make the dummy device kube-ipvs0: ENOTSUP (Operation not supported)",
            works=False,
            cost="scenarios of the ipvs mode are skipped",
            cure="load the kernel's module as root: 'modprobe dummy'",
        ),
    )
    identity = BinaryIdentity(version="v1.37.2", origin="built from k8s.io/kubernetes@v1.37.2", digest="2b6f0c9e71aa")
    programs = (
        ProgramHere(KUBE_PROXY, (Binary(Path("kube-proxy"), identity),)),
        ProgramHere(COREDNS, (), offers(Sources(Cache(Path("coredns"), COREDNS), {"release": FakeSource("v1.15.0")}))),
        ProgramHere(CONTROL_PLANE, (), offers(Sources(Cache(Path("x"), CONTROL_PLANE), {"module": FakeSource()}))),
    )
    return doctor_lines(Ready(pid=1, kernel="6.1.0", rootless=True), found, width, programs=programs)


def listened(width: int) -> list[str]:
    """The first two frames of a connection, a millisecond apart."""
    asked = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.244.0.2", dst="10.96.0.10")
    replied = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / IP(src="10.96.0.10", dst="10.244.0.2")
    first = bytes(asked / TCP(sport=40000, dport=80, flags="S", seq=1))
    second = bytes(replied / TCP(sport=80, dport=40000, flags="SA", seq=7, ack=2))
    at = 1_700_000_000_123_456_789
    return [
        frame_text(each)
        for each in (
            CapturedFrame(at, True, first.hex(), frame_line(first)),
            CapturedFrame(at + 10**6, False, second.hex(), frame_line(second)),
        )
    ]


class FakeSource:
    """A source of kube-proxies that lists some, or does not answer."""

    def __init__(self, *versions: str) -> None:
        self._versions = versions

    def versions(self) -> list[str]:
        if not self._versions:
            raise CapabilityError("https://dl.k8s.io/release/stable.txt (Name or service not known)", "be online")
        return [*self._versions]

    def obtain(self, version: str, cache: Cache) -> Binary:
        raise AssertionError(f"no test obtains {version}")


def listed(width: int) -> list[str]:
    cache = Cache(Path.cwd() / "cache")
    for version in ("v1.34.4", "v1.36.3"):
        with cache.workspace(version) as folder:
            cache.keep(program(folder / "kube-proxy", version), f"built from k8s.io/kubernetes@{version}")
    module = [f"v1.{minor}.{patch}" for minor in range(32, 37) for patch in range(4)]
    offered = offers(Sources(cache, {"release": FakeSource(), "module": FakeSource(*module)}))
    return engines_lines(cache.binaries(), offered, width)


def on_offer(width: int) -> list[str]:
    built = Kernel("/home/user/.cache/proxylab/kernels/7.2.11-1-2b6f0c9e71aa/linux", "7.2.11")
    return kernels_lines("6.18.44", (built, Kernel("/usr/bin/linux.uml", "6.1.176", "/usr/lib/uml/modules")), width)


UNMET = "service-endpoints-check ip daddr . meta l4proto . th dport vmap @no-endpoint-services"
MET = RuleCoverage(
    (
        RuleKind("nftables", "services", "services ip daddr . meta l4proto . th dport vmap @service-ips", 4, 4, ()),
        RuleKind("nftables", "service-endpoints-check", UNMET, 4, 0, ("…",), 2),
        *(RuleKind("nftables", "firewall-*", f"firewall-* rule {each}", 1, 0, ("…",), 1) for each in range(6)),
    )
)
"""What the probes met of the rules of mode nftables: one of eight kinds."""


def gated(width: int) -> list[str]:
    """A change of mode nftables that broke something, and of two others."""
    alters = touched(["pkg/proxy/nftables/proxier.go", "pkg/proxy/ipvs/proxier.go", "pkg/proxy/topology.go"])
    against = against_release(BROKEN, 0, RELEASE)
    gate = Gate(
        ran="kube-proxy v1.37.3-dirty: built in /home/me/kubernetes; commit f28b4c9efbca, dirty; SHA-256 999b6aaf524c",
        against=(replace(against, engine="kube-proxy/iptables", turned=(), red_on_both=1, unknown=12), against),
        touched=alters,
        base="0123456789abcdef0123456789abcdef01234567",
        late={"kube-proxy/nftables": 14},
        minutes=10.0,
        ready=14.2,
        tested=603.0,
        rules={"kube-proxy/nftables": MET},
    )
    return gate_lines(gate, width)


def audited(width: int) -> list[str]:
    found = audit_of(answer(RIGHT), answer(wrong()), answer(RIGHT, SenderKind.OUTSIDE), answer(RIGHT, service=""))
    return list(to_lines(found, width))


def certified(width: int) -> list[str]:
    old = promised(RIGHT, "untranslated", "unused-port/iptables")
    new = promised(RIGHT, "rejected", "unused-port/nftables")
    before = audit_of(asked(RIGHT), asked(old, "an unused port"), asked(RIGHT, "a node port", "shop/db"))
    after = audit_of(asked(RIGHT), asked(new, "an unused port"), asked(wrong(), "a node port", "shop/db"))
    return list(certificate_lines(certificate_of(before, replace(after, engine="embedded/nftables")), width))


def measured(width: int) -> list[str]:
    """A run of two engines, one of which was not measured everywhere, and what has changed since an earlier one."""
    before = benched(engine(), engine("kube-proxy/nftables"))
    after = benched(engine(), engine("kube-proxy/nftables", slower=1.25, failure="it ended with exit status 1"))
    return [*to_bench_lines(after, width), "", *comparison_lines(compare(before, after), width)]


DRAWN: dict[str, Callable[[int], list[str]]] = {
    "audit": audited,
    "bench": measured,
    "gate": gated,
    "migrate": certified,
    "capture": listened,
    "doctor": examined,
    "engines": listed,
    "kernels": on_offer,
}


@pytest.fixture(scope="module")
def dump() -> str:
    return k3s().json()


@pytest.fixture
def open_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump: str) -> Callable[[int, bool], None]:
    """Sets up a terminal of a width, in a folder with the files that the verbs read, where no lab is running."""
    numbers = itertools.count()

    def use(width: int, colour: bool) -> None:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        for each in FILES.glob("*.lab.yaml"):
            shutil.copy(each, folder)
        (folder / "dump.json").write_text(dump)
        for version in ("v1.36", "v1.37"):
            results = [replace(each, engine=f"kube-proxy@{version}/iptables") for each in RUN]
            (folder / f"{version}.json").write_text(to_json(results))
        (folder / "release.json").write_text(RELEASE.to_json())
        (folder / "build.json").write_text(BROKEN.to_json())
        record(folder / "bundle", Preserved())
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1" if colour else "")

    return use


WHOLE = re.compile(r"reproduce: |Error: |^Usage: |^\w+\.lab\.yaml:\d+:\d+: |^[-:*#] ?\w|^COMMIT|^ +https:")
"""Commands, rules, links and the place of a mistake are not broken, so that they can be copied."""

Show = Callable[[str, int, bool], str]


@pytest.fixture
def show(
    open_terminal: Callable[[int, bool], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Show:
    """What a verb prints on a terminal of so many columns, with or without colour."""

    def screen(name: str, width: int, colour: bool) -> str:
        open_terminal(width, colour)
        if name in DRAWN:
            text = "\n".join(DRAWN[name](width))
            click.echo(text if colour else click.unstyle(text), color=True)  # noqa: TID251
        else:
            typed = TYPED.get(name, (name, "--help"))
            monkeypatch.setattr(sys, "argv", ["proxylab", *typed])
            with pytest.raises(SystemExit):
                main(typed, make_session=functools.partial(ScreenSession, Path("journal")))
        output, errors = capsys.readouterr()  # progress goes first, and to standard error
        return re.sub(r"\b\d+\.\d\d s", "0.01 s", errors + output)

    return screen


def too_wide(text: str, width: int) -> list[str]:
    return [line for line in click.unstyle(text).splitlines() if len(line) > width and not WHOLE.search(line)]


@pytest.mark.parametrize("name", [*TYPED, *DRAWN])
def test_screen(name: str, show: Show, update_golden: bool) -> None:
    plain = show(name, 80, False)
    file = FILES / f"{name}.txt"
    if update_golden:
        file.write_text(plain, encoding="utf-8")
    assert plain == file.read_text(encoding="utf-8")
    assert "\x1b" not in plain
    assert click.unstyle(show(name, 80, True)) == plain
    assert too_wide(plain, 80) == too_wide(show(name, 160, True), 160) == []


def test_help_fits_a_terminal_of_80_columns(show: Show) -> None:
    assert {verb: too_wide(show(verb, 80, False), 80) for verb in VERBS} == {verb: [] for verb in VERBS}


def test_failures_are_coloured(show: Show) -> None:
    for name in ("run-failed", "judge", "doctor", "probe-rejected"):
        assert "\x1b" in show(name, 80, True), name


def test_every_verb_has_a_screen_and_no_screen_is_left_over() -> None:
    shown = {words[0] for words in TYPED.values()} | {*DRAWN}
    elsewhere = {"describe", "diagnose", "ps", "watch"}  # test_standing_lab_screens.py, tests/docs/test_recording.py
    documents = {"completion", "schema"}  # read by programs
    assert shown >= {*VERBS} - elsewhere - documents
    assert {each.stem for each in FILES.glob("*.txt")} == {*TYPED, *DRAWN} | OF_RUNS
