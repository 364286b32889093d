"""Every rendered file loads on the real kernel, with both kinds of iptables, and leaves the rules that it renders.

Each test runs in network and mount namespaces of its own (unshare(1)), with a private /run for the xtables lock.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rule_cases import CASES, Addresses, Case
from rule_worlds import clusters, edited, proxies

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.cleanup import cleanup_text
from proxylab.engines.embedded.iptables.kernel_state import KernelState, read_kernel_state
from proxylab.engines.embedded.iptables.legacy import V1_23
from proxylab.engines.embedded.iptables.meaning import differences, read_rules
from proxylab.engines.embedded.iptables.names import Table
from proxylab.engines.embedded.iptables.render import CURRENT, Renderer, render
from proxylab.engines.embedded.iptables.restore import RestoreText, restore, restore_changes
from proxylab.engines.embedded.iptables.rules import Generation, Ruleset
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.settings import ProxySettings

VARIANTS = ("nft", "legacy")
LOADED = {name: make for name, make in CASES.items() if name != "packet-counters"}
"""Rules that count into a named counter need one in the namespace; tests/kernel/test_node_work.py has it."""

TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
SANDBOX = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
PRIVATE_RUN = "mount -t tmpfs tmpfs /run"


def run(commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    script = "\n".join(["set -e", PRIVATE_RUN, *commands])
    return subprocess.run([*SANDBOX, "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)


def tool(family: Family, variant: str, verb: str) -> str:
    """The command's path, or skip the test where the machine has none."""
    command = f"{TOOLS[family]}-{variant}-{verb}"
    found = shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"no {command} here; install iptables")
    return found


def ready(family: Family, variant: str) -> None:
    """Skip where the machine gives no sandbox, or this variant of iptables does not work within."""
    tried = run([])
    if tried.returncode != 0:
        pytest.skip(f"unshare is refused: {tried.stderr.strip()}")
    listed = run([f"{tool(family, variant, 'save')} -t nat"])
    if listed.returncode != 0:
        pytest.skip(f"{TOOLS[family]}-{variant} does not work here: {listed.stderr.strip()}")


def load_and_save(
    family: Family, variant: str, texts: Sequence[str], tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    restore_command = tool(family, variant, "restore")
    commands = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.rules"
        file.write_text(text)
        commands.append(f"{restore_command} --noflush --counters < {file}")
    # Table by table: without -t, iptables-legacy-save reads a file in /proc that only the machine's root may read.
    save_command = tool(family, variant, "save")
    return run([*commands, *(f"{save_command} -c -t {table}" for table in Table)])


def ruleset(case: Case, family: Family, generation: Generation = CURRENT) -> Ruleset:
    return render(case.cluster, case.node, case.settings, family, generation)


def rule_count(text: RestoreText) -> int:
    return sum(line.startswith(("-A ", "-I ")) for line, _ in text.lines)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", list(Family), ids=str)
def test_every_case_loads_one_after_the_other(family: Family, variant: str, tmp_path: Path) -> None:
    """Loads follow each other, as in a running proxy: each must remove the leftovers of the one before."""
    ready(family, variant)
    held, texts = KernelState(), []
    for make in LOADED.values():
        wanted = ruleset(make(Addresses(family)), family)
        texts.append(restore(wanted, held).text)
        held = held.after(wanted)
    done = load_and_save(family, variant, texts, tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_kernel_state(done.stdout) == held


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", list(Family), ids=str)
def test_the_kernel_holds_every_rule_of_the_text(family: Family, variant: str, tmp_path: Path) -> None:
    ready(family, variant)
    text = restore(ruleset(CASES["load-balancer-source-ranges-with-node"](Addresses(family)), family), KernelState())
    done = load_and_save(family, variant, [text.text], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" -A ") == rule_count(text)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", list(Family), ids=str)
def test_a_restarted_proxy_finds_its_jumps_and_clears_stale_chains(
    family: Family, variant: str, tmp_path: Path
) -> None:
    """The output of iptables-save shows what is missing, so no rule is added twice."""
    ready(family, variant)
    addresses = Addresses(family)
    before = restore(ruleset(CASES["node-port-local-affinity"](addresses), family), KernelState())
    saved = load_and_save(family, variant, [before.text], tmp_path)
    wanted = ruleset(CASES["empty"](addresses), family)
    again = restore(wanted, read_kernel_state(saved.stdout))
    assert not [line for line, _ in again.lines if line.startswith("-I")]

    done = load_and_save(family, variant, [before.text, again.text], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" -A ") == rule_count(restore(wanted, KernelState()))
    assert "KUBE-SVC-" not in done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_fresh_forward_chain_has_kube_proxys_order(variant: str, tmp_path: Path) -> None:
    ready(Family.IPV4, variant)
    text = restore(ruleset(CASES["empty"](Addresses(Family.IPV4)), Family.IPV4), KernelState())
    done = load_and_save(Family.IPV4, variant, [text.text], tmp_path)
    forward = [line.rsplit(" ", 1)[1] for line in done.stdout.splitlines() if " -A FORWARD " in line]
    assert forward == ["KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wrong", ["-d 300.1.1.1", "-m nfacct --nfacct-name absent"])
def test_a_refusal_is_traced_to_line_and_service(variant: str, wrong: str, tmp_path: Path) -> None:
    """The tool's own message: a bad argument while parsing, or a rule that the kernel refuses."""
    ready(Family.IPV4, variant)
    good = restore(ruleset(CASES["cluster-ip"](Addresses(Family.IPV4)), Family.IPV4), KernelState())
    lines = tuple((line.replace("-s 10.42.0.11", wrong), service) for line, service in good.lines)
    bad = RestoreText(lines)
    done = load_and_save(Family.IPV4, variant, [bad.text], tmp_path)
    assert done.returncode != 0
    explained = bad.explain(done.stderr)
    assert "table nat is as it was before" in explained
    # iptables-legacy hands a whole table to the kernel, which does not name the rule that it refuses.
    if variant == "legacy" and "nfacct" in wrong:
        assert "a rule of the table" in explained
    else:
        assert wrong in explained
        assert "Service default/echo" in explained


# Any two of family, variant and generation meet in half of all cases; the others are thorough.
OVER_IPV4 = {("nft", "current"), ("legacy", "v1.23")}


@pytest.mark.parametrize(
    ("family", "variant", "generation"),
    [
        pytest.param(
            *(family, variant, generation),
            id=f"{family}-{variant}-{name}",
            marks=[]
            if (family is Family.IPV4) is ((variant == "nft") is (generation is CURRENT))
            else [pytest.mark.thorough],
        )
        for family in Family
        for variant in VARIANTS
        for name, generation in (("current", CURRENT), ("v1.23", V1_23))
    ],
)
def test_the_kernel_means_what_was_written_in_every_case(
    family: Family, variant: str, generation: Generation, tmp_path: Path
) -> None:
    """Each case into a namespace of its own, and back."""
    ready(family, variant)
    restore_command, save_command = tool(family, variant, "restore"), tool(family, variant, "save")
    cases = {name: make(Addresses(family)) for name, make in LOADED.items()}
    texts = {name: restore(ruleset(case, family, generation), KernelState()).text for name, case in cases.items()}
    commands = []
    for name, text in texts.items():
        file, back = tmp_path / f"{name}.rules", tmp_path / f"{name}.saved"
        file.write_text(text)
        saves = "; ".join(f"{save_command} -c -t {table}" for table in Table)
        commands.append(f"unshare --net sh -ec '{restore_command} --noflush --counters < {file}; ({saves}) > {back}'")
    done = run(commands)
    assert done.returncode == 0, done.stderr
    for name, text in texts.items():
        saved = (tmp_path / f"{name}.saved").read_text()
        assert differences(read_rules(text), read_rules(saved)) == [], name


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", list(Family), ids=str)
def test_a_clean_up_leaves_what_a_kubelet_may_own(family: Family, variant: str, tmp_path: Path) -> None:
    ready(family, variant)
    text = restore(ruleset(CASES["node-port-local-affinity"](Addresses(family)), family), KernelState()).text
    saved = load_and_save(family, variant, [text], tmp_path).stdout
    done = load_and_save(family, variant, [text, cleanup_text(saved)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {name for _, name in read_rules(done.stdout) if name.startswith("KUBE-")} == {"KUBE-FIREWALL"}
    assert {line.rsplit(" ", 1)[1] for line in done.stdout.splitlines() if " -A " in line} <= {"KUBE-FIREWALL", "DROP"}


@pytest.mark.parametrize("variant", VARIANTS)
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking a failure would take minutes of loading
    suppress_health_check=list(HealthCheck),
)
@given(proxies(), st.data())
def test_the_kernel_holds_after_partial_loads_what_one_full_load_leaves(
    variant: str, proxy: tuple[Family, ProxySettings, NodeFacts], data: st.DataObject
) -> None:
    """Eight clusters, each an edit of the one before, into one namespace; every text must load."""
    family, chosen, node = proxy
    ready(family, variant)
    renderer, cluster = Renderer(family, chosen), data.draw(clusters(family))
    loaded = renderer.render(cluster, node)
    texts = [restore(loaded, KernelState()).text]
    for _ in range(7):
        cluster = edited(cluster, data.draw(clusters(family)), data)
        wanted = renderer.render(cluster, node)
        texts.append(restore_changes(wanted, loaded).text)
        loaded = wanted
    with tempfile.TemporaryDirectory() as folder:
        done = load_and_save(family, variant, texts, Path(folder))
    assert done.returncode == 0, done.stderr
    assert differences(read_rules(restore(loaded, KernelState()).text), read_rules(done.stdout)) == []
