"""Scenarios as pytest items: ``pytest scenarios/x.lab.yaml`` and ``proxylab run`` are the same run.

This module owns the hooks. Collection needs no privilege and no kernel. In a project without ``*.lab.yaml`` the plugin
does nothing, so it imports the reader of scenarios only when there is one.

A scenario file is a ``pytest.Module``, and a probe or step a ``pytest.Function``: fixtures, ``-k``, ``::``, xdist and
other plugins treat them as they treat Python tests. Three fixtures carry the run, and a project may override each:

* ``lab_sessions``, once per worker: a lab process for each engine, started when the first item needs it.
* ``lab_open``: the lab of the item's scenario, or of its case; closed when an item needs another, or the file ends.
* ``lab_verdict``, once per item: sends and judges the probe, or ends and judges the step.

The fixtures gather evidence while pytest sets an item up; the item's call only compares the verdict with the
expectation. An unexpected result is *failed*. An undecided one is an *error*, so that JUnit keeps the two apart. What
this machine cannot do is *skipped*, with the fix.

For what YAML cannot express, write a ``test_*.py`` with the fixture ``lab`` or ``lab_factory`` (``python_fixtures``).
"""

import os
import platform
from pathlib import Path
from typing import Final

import pytest

from proxylab.errors import CapabilityError
from proxylab.guest.kernels import find_kernel
from proxylab.pytest_plugin.fixtures import lab_bundle_store, lab_of_file, lab_open, lab_sessions, lab_verdict
from proxylab.pytest_plugin.in_python import Lab
from proxylab.pytest_plugin.items import BROKEN_FILES, SUFFIX, ProbeItem, ScenarioFile
from proxylab.pytest_plugin.markers import markers_of_engine, register
from proxylab.pytest_plugin.on_failure import OnFailure
from proxylab.pytest_plugin.options import (
    ON_FAILURE,
    add_options,
    engine_of,
    engines,
    feature_gates,
    flag,
    iptables,
    is_paused,
    kernels,
    kube_proxy_flags,
    repeats,
    report,
    seed,
    shard,
    shell_netns_name,
    times,
    wanted_tags,
)
from proxylab.pytest_plugin.python_fixtures import (
    LabFactory,
    lab,
    lab_engine,
    lab_factory,
    lab_kernel,
    parametrize_labs,
)
from proxylab.pytest_plugin.report_page import Attaching, Gathering
from proxylab.pytest_plugin.summaries import Annotations, Binaries, Required, Themes
from proxylab.scenario.words import HOST

__all__ = [
    "Lab",
    "LabFactory",
    "ProbeItem",
    "ScenarioFile",
    "lab",
    "lab_bundle_store",
    "lab_engine",
    "lab_factory",
    "lab_kernel",
    "lab_of_file",
    "lab_open",
    "lab_sessions",
    "lab_verdict",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_itemcollected",
    "pytest_report_header",
    "pytest_sessionstart",
]

_ANNOTATES_ITSELF: Final = "pytest_github_actions_annotate_failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the lab, all of which begin with ``--lab-``."""
    add_options(parser)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Collect ``*.lab.yaml``, and no other YAML."""
    if file_path.name.endswith(SUFFIX):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run Python tests that use a lab on every chosen engine and kernel, as scenario files do."""
    parametrize_labs(metafunc)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a Python test that uses a lab the markers of its engine, so that ``-m`` chooses it as it does probes."""
    if engine := engine_of(item):
        for marker in markers_of_engine(engine):
            item.add_marker(marker)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the files of other shards."""
    chosen = shard(config)
    if chosen is None:
        return
    files = chosen.files([_file_of(each) for each in items], times(config))
    left_out = [each for each in items if _file_of(each) not in files]
    items[:] = [each for each in items if _file_of(each) in files]
    config.hook.pytest_deselected(items=left_out)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the shard into JUnit XML, as a property of its suite: `proxylab merge` looks whether one is missing.

    pytest has the fixture ``record_testsuite_property`` for that, which does nothing in workers of xdist.
    """
    chosen = shard(session.config)
    for plugin in session.config.pluginmanager.get_plugins():
        if chosen is not None and hasattr(plugin, "add_global_property"):
            plugin.add_global_property("shard", str(chosen))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the other files run if all that collection could not read are scenario files. Each stays an error."""
    if session.items and session.testsfailed == session.config.stash.get(BROKEN_FILES, 0):
        session.config.option.continue_on_collection_errors = True


def pytest_report_header(config: pytest.Config) -> list[str]:
    """A line for each kernel of the labs, unless it is the machine's alone."""
    chosen = kernels(config)
    return [] if chosen == (HOST,) else [f"lab kernel {name}: {_release(name)}" for name in chosen]


def _release(name: str) -> str:
    try:
        found = find_kernel(name)
    except CapabilityError as error:
        return f"missing: {error.missing}; {error.cure}"
    return f"{found.release}, {found.binary}" if found else platform.release()


def pytest_configure(config: pytest.Config) -> None:
    """Check the options, register the markers, and register the reporters.

    Under xdist only the controller gets the reporters that need the results of all items.
    """
    for option in (engines, iptables, feature_gates, kube_proxy_flags, repeats, seed, shard, times, wanted_tags):
        option(config)
    register(config)
    if any((flag(config, "keep"), is_paused(config), shell_netns_name(config))):
        config.pluginmanager.register(OnFailure(config), ON_FAILURE)
    if report(config) is not None:
        config.pluginmanager.register(Attaching(), "proxylab-attaching")
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Binaries(), "proxylab-binaries")
    config.pluginmanager.register(Themes(), "proxylab-themes")
    if report(config) is not None:
        config.pluginmanager.register(Gathering(config), "proxylab-report")
    if flag(config, "required"):
        config.pluginmanager.register(Required(), "proxylab-required")
    if os.environ.get("GITHUB_ACTIONS") == "true" and not config.pluginmanager.has_plugin(_ANNOTATES_ITSELF):
        config.pluginmanager.register(Annotations(), "proxylab-annotations")
