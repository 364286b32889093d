"""The plugin's options: on the command line, in the environment, or in pytest's ini file, in this order of precedence.

``--lab-engine`` is ``LAB_ENGINE`` in the environment and ``lab_engine`` in ``pyproject.toml`` or ``pytest.ini``.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

from proxylab.binaries.choose import read_gates
from proxylab.engines.engine_names import ENGINES, IPTABLES_VARIANTS, read_engine
from proxylab.report.shards import Shard, recorded_seconds
from proxylab.scenario.words import HOST

ON_FAILURE: Final = "proxylab-on-failure"
"""The name under which ``OnFailure`` is registered."""

_BUNDLES: Final = ".proxylab/bundles"
_PCAPS: Final = ".proxylab/pcap"
_MOST_REPEATS: Final = 10_000

_ONE: Final = {
    "iptables": (
        "VARIANT",
        f"the iptables variant that loads the rules: {', '.join(IPTABLES_VARIANTS)} (default: the first that works)",
    ),
    "kube-proxy": (
        "WHERE",
        (
            "the source of kube-proxy: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
            "module:VERSION (default: what `proxylab engines` lists)"
        ),
    ),
    "name-server": (
        "NAME",
        "the name server of labs whose scenario names none: coredns, coredns@VERSION, or a path (default: embedded)",
    ),
    "control-plane": (
        "NAME",
        "what serves the API of labs whose scenario names nothing: real, real@VERSION, or a path (default: embedded)",
    ),
    "feature-gates": ("NAME=BOOL,…", "feature gates for kube-proxy (default: none)"),
    "repeat": ("N", "run every probe N times, each time in a new lab (default: 1)"),
    "shard": (
        "I/N",
        "run only the Ith of N parts of the files, Python tests included; `proxylab merge` merges their reports",
    ),
    "times": ("FILE", "balance the shards by the times in this report of an earlier run, JSON or JUnit XML"),
    "seed": ("N", "the seed for source ports and payloads; the same seed sends the same packets (default: 0)"),
    "sync-seconds": ("N", "how long an engine may take to program a change (default: 60, and 240 in mode ipvs)"),
    "bundle-dir": (
        "DIRECTORY",
        "where to save the evidence of each probe that did not pass (default: .proxylab/bundles below rootdir)",
    ),
    "report": ("FILE", "also write the results as one HTML file, with the path of every probe's packet"),
    "shell": ("NODE|POD|HOST", "after a failed test, open a shell in this node, pod or host"),
    "pcap-dir": ("DIRECTORY", "where to save pcapng files (default: .proxylab/pcap below rootdir)"),
}
"""Options with one value: its name in the help, and its meaning."""

_FLAGS: Final = {
    "required": "fail if there are scenarios and all of them are skipped; for CI, where skips go unnoticed",
    "no-bundles": "save no evidence",
    "privileged": "let proxies and commands in a lab of the machine's root do all that root may",
    "keep": "keep the lab of a failed test running (see `proxylab ps`)",
    "pause-on-fail": "after a failed test, wait for Enter; until then other terminals can use its lab",
    "pcap": "save the frames of every test as a pcapng file",
}


def add_options(parser: pytest.Parser) -> None:
    """Add the options, all of which begin with ``--lab-``, and their ini keys."""
    group = parser.getgroup("proxylab", "Kubernetes Service proxies on a real kernel")
    group.addoption(
        "--lab-engine",
        action="append",
        metavar="NAME",
        help=f"the engine to run in every node; may be repeated: {', '.join(ENGINES)} (default: {ENGINES[0]})",
    )
    group.addoption(
        "--lab-tags",
        action="append",
        metavar="ENGINE=TAG,…",
        help="run this engine only on the scenarios that have one of these tags; may be repeated (default: on all)",
    )
    group.addoption(
        "--lab-kube-proxy-flag",
        action="append",
        metavar="FLAG",
        help="one more flag for kube-proxy, such as --lab-kube-proxy-flag=--v=4; may be repeated",
    )
    group.addoption(
        "--lab-kernel",
        action="append",
        metavar="KERNEL",
        help="a kernel of the labs; may be repeated: host, uml, debian:VERSION, or the path of one (default: host)",
    )
    parser.addini("lab_engine", "the engines of --lab-engine, separated by spaces", type="args")
    parser.addini("lab_tags", "the values of --lab-tags, separated by spaces", type="args")
    parser.addini("lab_kernel", "the kernels of --lab-kernel, separated by spaces", type="args")
    parser.addini("lab_kube_proxy_flag", "the flags of --lab-kube-proxy-flag, separated by spaces", type="args")
    for name, (metavar, meaning) in _ONE.items():
        group.addoption(f"--lab-{name}", metavar=metavar, help=meaning)
        parser.addini(f"lab_{name.replace('-', '_')}", f"same as --lab-{name}", type="string")
    for name, meaning in _FLAGS.items():
        group.addoption(f"--lab-{name}", action="store_true", default=None, help=meaning)
        parser.addini(f"lab_{name.replace('-', '_')}", f"same as --lab-{name}", type="bool")


def engines(config: pytest.Config) -> tuple[str, ...]:
    """The chosen engines, each once. Raises ``UsageError`` for an unknown name."""
    given = _several(config, "engine")
    for name in given:
        try:
            read_engine(name)
        except ValueError as error:
            raise pytest.UsageError(f"--lab-engine: {error}") from None
    return tuple(dict.fromkeys(given)) or ENGINES[:1]


def engines_of(config: pytest.Config, tags: Collection[str]) -> tuple[str, ...]:
    """The chosen engines that take a scenario with these tags."""
    wanted = wanted_tags(config)
    return tuple(each for each in engines(config) if each not in wanted or not wanted[each].isdisjoint(tags))


def wanted_tags(config: pytest.Config) -> Mapping[str, frozenset[str]]:
    """The tags of the scenarios to which an engine keeps. Raises ``UsageError`` for a malformed value."""
    wanted: dict[str, frozenset[str]] = {}
    for given in _several(config, "tags"):
        engine, _, tags = given.partition("=")
        named = frozenset(filter(None, tags.split(",")))
        try:
            read_engine(engine)
        except ValueError as error:
            raise pytest.UsageError(f"--lab-tags: {error}") from None
        if not named:
            raise pytest.UsageError(f"--lab-tags: {given!r} names no tag; give ENGINE=TAG, or several: ENGINE=TAG,TAG")
        wanted[engine] = wanted.get(engine, frozenset()) | named
    return wanted


def kernels(config: pytest.Config) -> tuple[str, ...]:
    """The chosen kernels, each once."""
    return tuple(dict.fromkeys(_several(config, "kernel"))) or (HOST,)


def engine_of(item: pytest.Item) -> str | None:
    """The engine of a Python test's labs, or None if the item is no test that uses one."""
    if "lab_engine" not in getattr(item, "fixturenames", ()):
        return None
    parameters: dict[str, str] = item.callspec.params if hasattr(item, "callspec") else {}
    return parameters.get("lab_engine", engines(item.config)[0])


def iptables(config: pytest.Config) -> str:
    """The chosen iptables variant, or "". Raises ``UsageError`` for an unknown name."""
    given = one(config, "iptables")
    if given and given not in IPTABLES_VARIANTS:
        raise pytest.UsageError(f"--lab-iptables: {given!r} is not a variant; choose {', '.join(IPTABLES_VARIANTS)}")
    return given


def feature_gates(config: pytest.Config) -> Mapping[str, bool]:
    """The feature gates for kube-proxy. Raises ``UsageError`` for a malformed value."""
    given = one(config, "feature_gates")
    if not given:
        return {}
    _needs_kube_proxy(config, "feature_gates")
    try:
        return read_gates(given)
    except ValueError as error:
        raise pytest.UsageError(f"--lab-feature-gates: {error}") from None


def kube_proxy_flags(config: pytest.Config) -> tuple[str, ...]:
    """Further flags for kube-proxy. Raises ``UsageError`` if no kube-proxy runs."""
    _needs_kube_proxy(config, "kube_proxy_flag")
    return tuple(_several(config, "kube_proxy_flag"))


def _needs_kube_proxy(config: pytest.Config, name: str) -> None:
    """Refuse an option on the command line that no engine takes; environment and ini file may name it anyway."""
    chosen = engines(config)
    if config.getoption(f"lab_{name}") and not any(read_engine(each).is_upstream for each in chosen):
        option = f"--lab-{name.replace('_', '-')}"
        raise pytest.UsageError(
            f"{option} is for kube-proxy, but --lab-engine is {', '.join(chosen)}; add --lab-engine kube-proxy/iptables"
        )


def sync_seconds(config: pytest.Config) -> float | None:
    """How long an engine may take to program a change. Raises ``UsageError`` for what is no such time."""
    given = one(config, "sync_seconds")
    if (given and not given.isdecimal()) or given == "0":
        raise pytest.UsageError(f"--lab-sync-seconds: {given!r} is not valid; give a number of seconds from 1 on")
    return float(given) if given else None


def repeats(config: pytest.Config) -> int:
    """How many times each probe runs. Raises ``UsageError`` for any other value."""
    given = one(config, "repeat") or "1"
    if not given.isdecimal() or not 1 <= int(given) <= _MOST_REPEATS:
        raise pytest.UsageError(f"--lab-repeat: {given!r} is not valid; give a number from 1 to {_MOST_REPEATS}")
    return int(given)


def seed(config: pytest.Config) -> int:
    """The seed for source ports and payloads. Raises ``UsageError`` for any other value."""
    given = one(config, "seed") or "0"
    if not given.isdecimal():
        raise pytest.UsageError(f"--lab-seed: {given!r} is not valid; give a number from 0 on")
    return int(given)


def shard(config: pytest.Config) -> Shard | None:
    """The chosen shard, or ``None``. Raises ``UsageError`` for a malformed value."""
    given = one(config, "shard")
    try:
        return Shard.read(given) if given else None
    except ValueError as error:
        raise pytest.UsageError(f"--lab-shard: {error}") from None


def times(config: pytest.Config) -> Mapping[str, float]:
    """The times of files in an earlier run. Raises ``UsageError`` if the file cannot be read."""
    given = one(config, "times")
    try:
        return recorded_seconds(Path(given).read_text(encoding="utf-8")) if given else {}
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--lab-times: {given}: {error}") from None


def bundle_directory(config: pytest.Config) -> Path | None:
    """Where to save evidence; ``None`` to save none."""
    if flag(config, "no_bundles"):
        return None
    return Path(os.path.relpath(one(config, "bundle_dir") or config.rootpath / _BUNDLES))


def report(config: pytest.Config) -> Path | None:
    """The file of the HTML report, relative to the invocation directory; ``None`` for no report."""
    given = one(config, "report")
    return config.invocation_params.dir / given if given else None


def is_paused(config: pytest.Config) -> bool:
    """Whether the run waits after a failed item. Raises ``UsageError`` under xdist, which has no terminal."""
    return flag(config, "pause_on_fail") and _at_a_terminal(config, "--lab-pause-on-fail")


def shell_netns_name(config: pytest.Config) -> str:
    """The node, pod or host for a shell after a failed item, or "". Raises ``UsageError`` under xdist."""
    netns_name = one(config, "shell")
    return netns_name if netns_name and _at_a_terminal(config, "--lab-shell") else ""


def _at_a_terminal(config: pytest.Config, option: str) -> bool:
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError(f"{option}: xdist workers have no terminal; leave out -n, or use --lab-keep")
    return True


def pcap_directory(config: pytest.Config) -> Path:
    """Where to save the frames."""
    return Path(os.path.relpath(one(config, "pcap_dir") or config.rootpath / _PCAPS))


def flag(config: pytest.Config, name: str) -> bool:
    """Whether a boolean option is set: on the command line, in the environment or in the ini file."""
    given = config.getoption(f"lab_{name}")
    variable = f"LAB_{name.upper()}"
    if given is None and variable in os.environ:
        return os.environ[variable] not in ("", "0")
    return bool(given or config.getini(f"lab_{name}"))


def _several(config: pytest.Config, name: str) -> list[str]:
    """The values of an option that may be repeated."""
    given = config.getoption(f"lab_{name}") or os.environ.get(f"LAB_{name.upper()}", "").split()
    return list(given or config.getini(f"lab_{name}"))


def one(config: pytest.Config, name: str) -> str:
    """The value of an option, or ""."""
    return str(
        config.getoption(f"lab_{name}") or os.environ.get(f"LAB_{name.upper()}") or config.getini(f"lab_{name}") or ""
    )
