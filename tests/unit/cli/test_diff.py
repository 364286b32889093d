"""``proxylab diff``: who is asked what, and in which order."""

import pytest
from caller import Caller
from kube_proxies import program

from proxylab.binaries.cache import Cache
from proxylab.binaries.module import ModuleSource
from proxylab.errors import ExitCode

BOTH = "embedded/iptables,embedded@v1.34/iptables"
STEPS = """  steps:
  - {name: the pod goes, change: {pods: {echo: {ready: false}}}, expect: {conntrack: {none: {replyFrom: echo}}},
     probes: [{name: no pod answers, from: client, to: {pod: echo}, expect: {outcome: delivered, source: preserved}}]}
---
"""


def test_probes_and_steps_are_asked_for_on_every_engine(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    path = caller.folder / "x.lab.yaml"
    path.write_text(path.read_text().replace("---\n", STEPS, 1))
    code, output, errors = caller.type("diff", "x.lab.yaml", "--engines", BOTH)
    assert code == ExitCode.OK
    assert output == "x.lab.yaml: no difference between embedded/iptables, embedded@v1.34/iptables\n"
    assert errors == "x.lab.yaml: 2 probes and 1 step\n"
    asked = [event for event in caller.events() if event.startswith(("probe", "step", "conclude"))]
    assert asked == [
        *("probe one", "probe one"),
        *("step the pod goes", "probe the pod goes: no pod answers") * 2,
        *("conclude the pod goes",) * 2,
    ]


@pytest.mark.parametrize(
    ("engines", "words"),
    [
        ("embedded/iptables", "name two or more engines"),
        ("embedded/iptables,embedded/iptables", "name two or more engines"),
        ("embedded/iptables,foo/iptables", "there is no engine 'foo/iptables'"),
    ],
)
def test_engines_that_cannot_be_compared(caller: Caller, engines: str, words: str) -> None:
    caller.scenario("x.lab.yaml", "one")
    code, _, errors = caller.type("diff", "x.lab.yaml", "--engines", engines)
    assert code == ExitCode.SCENARIO
    assert f"--engines: {words}" in errors


def test_what_is_for_kube_proxy_is_refused_where_none_is_compared(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    code, _, errors = caller.type("diff", "x.lab.yaml", "--engines", BOTH, "--feature-gates", "A=true")
    assert code == ExitCode.SCENARIO
    assert "--feature-gates is for kube-proxy" in errors


def test_engines_that_run_the_same_binary_are_named_before_they_run(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    caller.scenario("x.lab.yaml", "one")
    program(caller.folder / "mine", "v1.37.2")
    both = "kube-proxy@v1.37/nftables", "kube-proxy@v1.37.2/nftables"
    code, output, _ = caller.type("diff", "x.lab.yaml", "--engines", ",".join(both), "--kube-proxy", "mine")
    assert code == ExitCode.OK
    binary, alike, found = output.replace("\n  ", " ").splitlines()
    assert binary.startswith(f"{', '.join(both)}: kube-proxy v1.37.2: the file {caller.folder / 'mine'}; SHA-256 ")
    assert alike == f"{' and '.join(both)} are the same: one binary, in mode nftables; what differs is chance"
    assert found == f"x.lab.yaml: no difference between {', '.join(both)}"


def test_one_binary_in_two_modes_is_named_once_and_is_no_single_proxy(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    program(caller.folder / "mine", "v1.37.2")
    named = ("--engines", "kube-proxy/nftables,kube-proxy/iptables", "--kube-proxy", "mine")
    code, output, _ = caller.type("diff", "x.lab.yaml", *named)
    assert code == ExitCode.OK
    assert output.startswith("kube-proxy/nftables, kube-proxy/iptables: kube-proxy v1.37.2: ")
    assert "are the same" not in output


def test_two_builds_of_one_version_are_two(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release in the cache, and a patch of it that calls itself by the same version."""
    release = Cache(caller.folder / "cache/proxylab/kube-proxy")
    with release.workspace("a release") as folder:
        release.keep(program(folder / "kube-proxy", "v1.37.2"), ModuleSource().origin("v1.37.2"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(caller.folder / "cache"))
    monkeypatch.setenv("COLUMNS", "400")
    caller.scenario("x.lab.yaml", "one")
    program(caller.folder / "mine", "v1.37.2", "# with a patch")
    named = ("--engines", "kube-proxy@v1.37/nftables,kube-proxy/nftables", "--kube-proxy", "mine")
    code, output, _ = caller.type("diff", "x.lab.yaml", *named)
    assert code == ExitCode.OK
    first, second, _ = output.replace("\n  ", " ").splitlines()
    assert first.startswith("kube-proxy@v1.37/nftables: kube-proxy v1.37.2: built from k8s.io/kubernetes@v1.37.2; ")
    assert second.startswith(f"kube-proxy/nftables: kube-proxy v1.37.2: the file {caller.folder / 'mine'}; ")
    assert first.rpartition(" ")[2] != second.rpartition(" ")[2]
