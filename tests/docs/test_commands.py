"""Every command on the pages prints what the page shows. ``LAB_DOCS=write`` puts the real output into the pages."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from changes import base_of, changed_since
from concerns import is_concerned, of_page
from documents import (
    ROOT,
    Command,
    File,
    clone_of_a_reader,
    matches,
    needs_a_checkout,
    pages,
    play,
    steps,
    untyped,
    with_outputs,
)
from guests import OWN

OWN_TEST = {
    "run-the-gate-in-ci.md",  # test_gate_recipes.py reads its jobs; its commands need an engine of containers
    "add-a-verb.md",  # test_added_verb.py installs its package
    "in-your-own-repository.md",  # tests/packaging/test_own_repository.py types its commands, with a wheel
}
PAGES = [
    page
    for page in pages()
    if page.name not in OWN_TEST and any(isinstance(each, Command) for each in steps(page.read_text()))
]

REPEATED = "./dev pytest scenarios --lab-engine embedded/iptables --lab-repeat 50 --numprocesses=auto --dist=loadfile"
MUTATED = "./dev pytest tests/benchmarks/test_mutants_of_the_catalogue.py -m budget -rP"
WHERE_RED = (
    "./dev proxylab run external-ip.lab.yaml --engine kube-proxy@v1.23/iptables --engine kube-proxy@v1.37/iptables "
    "--kernel host --kernel uml --kernel /usr/bin/linux.uml"
)
ON_RAY = (
    "proxylab run scenarios --ray ray://HEAD:10001 --engine embedded/iptables --engine kube-proxy/nftables -o json "
    "> run.json"
)
CLONE = "git clone https://github.com/kubernetes/kubernetes"

OTHER_NFT = "proxylab run scenarios --engine kube-proxy/nftables --program nft=/opt/nftables-1.0.6/sbin/nft"
OTHER_IPTABLES = (
    "proxylab run scenarios --engine kube-proxy/iptables --iptables nft --program "
    "iptables=/opt/iptables-1.8.8/sbin/xtables-nft-multi"
)
OF_NODES = "needs another program; tests/kernel/test_programs_of_nodes.py makes some"
BENCHED = "proxylab bench --services 100,1000,5000,10000 --engine kube-proxy/iptables --engine kube-proxy/nftables"
DRAWN = (
    "proxylab bench --services 30,120 --rounds 2 --changes 3 --engine embedded/iptables --engine embedded/nftables "
    "--engine kube-proxy/iptables --engine kube-proxy/nftables --report how-proxies-grow.svg"
)
BISECTED = (
    "git -C /src/kubernetes bisect start v1.37.0 v1.36.0",
    (
        "git -C /src/kubernetes bisect run $PWD/red proxylab run $PWD/shop.lab.yaml --engine kube-proxy/nftables "
        "--kube-proxy /src/kubernetes"
    ),
)

NEW_NODE = "echo '{apiVersion: v1, kind: Node, metadata: {name: node-c}}' | proxylab kubectl -- create -f -"
IN_A_REAL_CLUSTER = "asks a lab with a real control plane; tests/kernel/test_real_control_plane.py has such a one"

NOT_TYPED = {
    "proxylab get svc,pods -A -l app=shop -o wide": IN_A_REAL_CLUSTER,
    "proxylab probe client svc/shop --flows 20": IN_A_REAL_CLUSTER,
    "proxylab trace team/web-0 pod/echo-1": IN_A_REAL_CLUSTER,
    NEW_NODE: IN_A_REAL_CLUSTER,
    "proxylab kubectl -- delete node node-c": IN_A_REAL_CLUSTER,
    OTHER_NFT: OF_NODES,
    OTHER_IPTABLES: OF_NODES,
    "./dev lab": "runs every scenario, as the tests do anyway; tests/unit/test_dev.py types it elsewhere",
    "./dev lint": "is of the tests that run now",
    "./dev test --junitxml=run.xml && ./dev times run.xml > tests/times.md": "runs this test",
    "./dev size": "counts the clone itself; tests/unit/test_code_size.py shows what it counts",
    "./dev test": "runs this test",
    "./dev test --all": "runs this test",
    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0": "changes the machine",
    WHERE_RED: "needs two kube-proxies and two kernels that not every machine has",
    "pip install --find-links wheels 'proxylab[ray]'": "needs the wheel, and a package index with Ray",
    "ray start --head": "listens on the machine's own network; tests/kernel/test_ray.py starts a cluster in a sandbox",
    "ray start --address=HEAD:6379": "joins that cluster",
    ON_RAY: "runs on that cluster",
    "(cd kubernetes && gh pr checkout 140951)": "asks GitHub; tests/engines/test_gate.py has that fault",
    CLONE: "is a gigabyte; tests/engines/test_checkout.py puts a checkout there instead",
    "./dev pytest tests/unit": "is of the tests that run now",
    "proxylab engines --obtain control-plane": "builds for minutes; tests/unit/binaries/test_control_plane.py does it",
    "./dev pytest tests/kernel": "is of the tests that run now",
    "./dev ruff format . && ./dev ruff check --fix .": "changes the files of the project; tests/lint only looks",
    **dict.fromkeys(
        (f"{BENCHED} --report before.json", f"{BENCHED} --kube-proxy /src/kubernetes --against before.json"),
        "takes an hour at these sizes; tests/kernel/test_bench.py asks for few Services",
    ),
    DRAWN: "takes minutes; tests/kernel/test_bench.py asks for few Services",
    REPEATED: "takes half an hour of a machine that does nothing else",
    MUTATED: "mutates every rule, which takes half an hour",
    **dict.fromkeys(BISECTED, "builds a kube-proxy for each of a dozen commits; the same page bisects manifests"),
}
"""Commands that no test types, and why."""

IN_YAML = {
    "docs/how-to/run-in-ci.md": "what a CI system types; `doctor --ci` prints the same there, and that is compared",
    "docs/how-to/run-the-gate-in-ci.md": "jobs of CI systems, which test_gate_recipes.py compares with the gate",
}
"""Pages with commands in other files, and why no test types them."""

BASE = base_of(ROOT)
CHANGED = changed_since(BASE, ROOT) if BASE else None

LACKS_A_CAPABILITY = 4
FAILURE = re.compile(r"^```text\n(fail .*?)^```$", re.MULTILINE | re.DOTALL)
REPRODUCE = re.compile(r"reproduce: (.*\\\n.*)\n")
WITHOUT_MASQUERADE = """\
import proxylab.engines.embedded.iptables.fixed as module
module.masquerade = lambda settings: ()
"""
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")

# There is no live cluster: the page has its output, as the file that the command would write.
KUBECTL = """#!/bin/sh
[ "$*" = "get svc,endpointslices,pods,nodes -A -o yaml" ] && echo '{apiVersion: v1, kind: List, items: []}'
"""
UPSTREAM = (pytest.mark.engine_kube_proxy, pytest.mark.upstream)
OF_KUBE_PROXY = re.compile("-(?:engine|to) kube-proxy")
COMMAND = re.compile(r"^[\s$-]*(?:run: |sudo )?(?:\./dev|docker|git|kubectl|proxylab|pytest|tox) (?! )", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone, with a kubectl on the path."""
    clone_of_a_reader(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").write_text(KUBECTL)
    (tmp_path / "bin/kubectl").chmod(0o755)
    return tmp_path


def is_of_this_change(page: Path) -> bool:
    return CHANGED is None or is_concerned(of_page(page), CHANGED)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[
                *([OWN] if "--kernel uml" in page.read_text() else []),
                *(UPSTREAM if OF_KUBE_PROXY.search(page.read_text()) else []),  # held back until there is one
                # Where neither the page nor a verb on it changed, the README alone shows that pages are true.
                *([] if page.name == "README.md" or is_of_this_change(page) else [pytest.mark.thorough]),
            ],
        )
        for page in PAGES
    ],
)
def test_every_command_prints_what_the_page_says(page: Path, folder: Path) -> None:
    bin_folder = Path(sys.executable).parent
    if shutil.which("proxylab", path=str(bin_folder)) is None:
        pytest.skip("proxylab is not installed beside this Python; run the tests with ./dev test")
    text = page.read_text()
    outputs: list[tuple[Command, str]] = []
    wrong = []
    for step in steps(text):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text)
            continue
        if step.words in NOT_TYPED or needs_a_checkout(step):
            continue
        environment = {
            "PATH": f"{folder / 'bin'}:{bin_folder}:{os.environ['PATH']}",
            "COLUMNS": "80",
            "XDG_RUNTIME_DIR": str(folder),
            "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:randomly",
        }
        done = play(step, folder, environment)
        if done.returncode == LACKS_A_CAPABILITY:
            pytest.skip(done.stdout)
        outputs.append((step, done.stdout))
        held = matches(step.output, done.stdout.splitlines()) if step.output else done.returncode == 0
        if not held:
            wrong.append(f"line {step.line}: $ {step.text}\n(exit {done.returncode})\n{done.stdout}")
    if os.environ.get("LAB_DOCS") == "write":
        page.write_text(with_outputs(text, outputs))
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(120)
def test_the_failure_on_the_first_page_is_what_an_engine_without_masquerade_gives(folder: Path) -> None:
    """The command under *reproduce* prints it once the rule is taken out of the engine."""
    page = ROOT / "README.md"
    text = page.read_text()
    block = FAILURE.search(text)
    assert block is not None
    typed = REPRODUCE.search(block[1])
    assert typed is not None
    lines = ("...", *block[1].splitlines())  # a line of progress comes first
    shown = Command(text.count("\n", 0, block.start(1)), typed[1], lines, block.span(1))
    (folder / "sitecustomize.py").write_text(WITHOUT_MASQUERADE)
    found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = play(shown, folder, {**found, "PYTHONPATH": paths})
    if done.returncode == LACKS_A_CAPABILITY:
        pytest.skip(done.stdout)
    assert matches(shown.output, done.stdout.splitlines()), done.stdout


def test_every_command_that_is_not_typed_stands_on_a_page() -> None:
    """An entry without its command would be an excuse for nothing."""
    written = {step.words for page in PAGES for step in steps(page.read_text()) if isinstance(step, Command)}
    assert written >= set(NOT_TYPED)


def test_no_command_stands_where_it_is_not_typed() -> None:
    found = {
        (str(page.relative_to(ROOT)), language)
        for page in pages()
        for language, body in untyped(page.read_text())
        if COMMAND.search(body)
    }
    recorded = {("docs/how-to/watch-a-scenario.md", "text")}  # test_recording.py types it
    assert found == {(page, "yaml") for page in IN_YAML} | recorded


def test_the_pages_have_commands() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "tutorial.md"}


def test_every_link_between_pages_leads_somewhere() -> None:
    links = [(page, target) for page in pages() for target in LINK.findall(page.read_text())]
    assert len(links) > 10
    assert [f"{page}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def test_numbers_of_other_length_may_wrap_lines_elsewhere() -> None:
    page = ["985 of 2,000 flows: echo-1 saw it come from", "10.244.0.10", "...", "$ end"]
    assert matches(page, ["1,000 of 2,000 flows: echo-1 saw it come", "from 10.244.0.10", "any", "lines", "$ end"])
    assert not matches(page, ["985 of 2,000 flows: echo-1 saw it go to", "10.244.0.10", "$ end"])
    assert not matches(page, ["985 of 2,000 flows: echo-1 saw it come from", "10.244.0.10", "$ end", "more"])
