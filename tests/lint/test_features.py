"""What the contracts in pyproject.toml cannot say of features: it holds for modules that are not yet written, too."""

from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
FEATURES = "proxylab.features"
AUDIT = f"{FEATURES}.audit"  # a feature that a test makes
IMPURE = (
    *("asyncio", "docker", "multiprocessing", "pyroute2", "scapy", "socket", "subprocess", "threading"),
    *("proxylab.cli", "proxylab.client", "proxylab.kernel", "proxylab.pytest_plugin", "proxylab.server"),
)


def modules_of_features(graph: grimp.ImportGraph) -> Iterator[tuple[str, str]]:
    """Each module of a feature: its name in the feature, and its whole name."""
    for module in sorted(graph.modules):
        within = module.removeprefix(f"{FEATURES}.").split(".")
        if module.startswith(f"{FEATURES}.") and len(within) > 1:
            yield within[1], module


def offences(graph: grimp.ImportGraph) -> Iterator[str]:
    """The verb imports the runs, and both import the rest, which is pure: it opens no socket and asks no lab."""
    for role, module in modules_of_features(graph):
        for importer in sorted(graph.find_modules_that_directly_import(module)):
            if role == "verb" or (role == "runs" and importer.rpartition(".")[2] != "verb"):
                yield f"{importer} imports {module}"
        if role not in ("verb", "runs"):
            for impure in sorted(graph.find_upstream_modules(module)):
                if any(impure == each or impure.startswith(f"{each}.") for each in IMPURE):
                    chain = graph.find_shortest_chain(module, impure) or ()
                    yield " imports ".join(chain)
                    break


def test_the_modules_of_a_feature_are_a_verb_over_runs_over_what_is_pure() -> None:
    graph = grimp.build_graph("proxylab", include_external_packages=True, exclude_type_checking_imports=True)
    assert len(list(modules_of_features(graph))) > 0
    assert list(offences(graph)) == []


def test_each_feature_has_a_verb_and_a_folder_of_unit_tests() -> None:
    features = {each.parent.name for each in (ROOT / "lab/proxylab/features").glob("*/__init__.py")}
    assert len(features) > 10
    assert {each.parent.name for each in (ROOT / "lab/proxylab/features").glob("*/verb.py")} == features
    assert {each.parent.name for each in (ROOT / "tests/unit/features").glob("*/test_*.py")} == features


@pytest.mark.parametrize(
    ("importer", "imported", "offence"),
    [
        ("rows", "socket", "rows imports socket"),
        ("rows", "proxylab.client.session", "rows imports proxylab.client.session"),
        ("rows", "proxylab.far", "rows imports proxylab.far imports asyncio"),
        ("rows", f"{AUDIT}.runs", "rows imports runs"),
        ("runs", f"{AUDIT}.verb", "runs imports verb"),
        ("runs", "proxylab.client.session", None),
        ("verb", f"{AUDIT}.runs", None),
        ("runs", f"{AUDIT}.rows", None),
        ("rows", "proxylab.plan.model", None),
    ],
)
def test_an_arrow_the_wrong_way_is_seen(importer: str, imported: str, offence: str | None) -> None:
    graph = grimp.ImportGraph()
    for role in ("verb", "runs", "rows"):
        graph.add_module(f"{AUDIT}.{role}")
    graph.add_import(importer="proxylab.far", imported="asyncio")
    graph.add_import(importer=f"{AUDIT}.{importer}", imported=imported)
    assert [each.replace(f"{AUDIT}.", "") for each in offences(graph)] == ([offence] if offence else [])
