"""The plugin's options, each to be had in three ways.

Owns: their names, and which way wins: the command line, then an environment variable, then pytest's ini file.
Must not: act on any of them.

``--lab-engine`` is ``LAB_ENGINE`` in the environment and ``lab_engine`` in ``pyproject.toml`` or ``pytest.ini``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pytest

from proxylab.engines.names import ENGINES, IPTABLES, read_engine

__all__ = [
    "add_options",
    "bundle_directory",
    "engines",
    "feature_gates",
    "flag",
    "iptables",
    "is_required",
    "kube_proxy",
    "kube_proxy_flags",
    "one",
    "repeats",
    "report",
    "seed",
]

_BUNDLES: Final = ".proxylab/bundles"
_INI: Final[Mapping[str, Literal["string", "bool"]]] = {
    "iptables": "string",
    "kube_proxy": "string",
    "feature_gates": "string",
    "repeat": "string",
    "seed": "string",
    "bundle_dir": "string",
    "report": "string",
    "no_bundles": "bool",
    "required": "bool",
}
"""The keys of an ini file that are like their options."""

_MOST_REPEATS: Final = 10_000


def add_options(parser: pytest.Parser) -> None:
    """Add every option, all of which begin with ``--lab-``, and its ini key."""
    group = parser.getgroup("proxylab", "Kubernetes Service proxies on a real kernel")
    group.addoption(
        "--lab-engine",
        action="append",
        metavar="NAME",
        help=f"an engine to run in every node; may be repeated: {', '.join(ENGINES)} (default: {ENGINES[0]})",
    )
    group.addoption(
        "--lab-iptables",
        metavar="VARIANT",
        help=f"the variant of iptables that loads the rules: {', '.join(IPTABLES)} (default: the first that works)",
    )
    _add_kube_proxy_options(group)
    group.addoption(
        "--lab-repeat", metavar="N", help="run every probe so many times, each time in a lab of its own (default: 1)"
    )
    group.addoption(
        "--lab-required",
        action="store_true",
        default=None,
        help="fail when there are scenarios and this machine could run none of them (in CI, where skips go unseen)",
    )
    group.addoption(
        "--lab-seed",
        metavar="N",
        help="orders source ports and payloads; the same seed sends the same packets (default: 0)",
    )
    group.addoption(
        "--lab-bundle-dir",
        metavar="DIRECTORY",
        help="where the evidence of each probe that did not pass is kept (default: .proxylab/bundles below rootdir)",
    )
    group.addoption(
        "--lab-report", metavar="FILE", help="write the run as a page for a browser, too: one HTML file, with every way"
    )
    group.addoption("--lab-no-bundles", action="store_true", default=None, help="keep no evidence")
    parser.addini("lab_engine", "the engines of --lab-engine, separated by spaces", type="args")
    parser.addini("lab_kube_proxy_flag", "the flags of --lab-kube-proxy-flag, separated by spaces", type="args")
    for name, kind in _INI.items():
        parser.addini(f"lab_{name}", f"as --lab-{name.replace('_', '-')}", type=kind)


def _add_kube_proxy_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--lab-kube-proxy",
        metavar="WHERE",
        help="where kube-proxy comes from: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
        "module:VERSION (default: what `proxylab engines` lists)",
    )
    group.addoption(
        "--lab-feature-gates", metavar="NAME=BOOL,…", help="feature gates to be switched in kube-proxy (default: none)"
    )
    group.addoption(
        "--lab-kube-proxy-flag",
        action="append",
        metavar="FLAG",
        help="one more flag for kube-proxy, such as --lab-kube-proxy-flag=--v=4; may be repeated",
    )


def engines(config: pytest.Config) -> tuple[str, ...]:
    """The engines that were asked for, each once. Raises ``UsageError`` for a name that is none."""
    given = _several(config, "engine")
    for name in given:
        try:
            read_engine(name)
        except ValueError as error:
            raise pytest.UsageError(f"--lab-engine: {error}") from None
    return tuple(dict.fromkeys(given)) or ENGINES[:1]


def iptables(config: pytest.Config) -> str:
    """The variant of iptables that was asked for, or nothing. Raises ``UsageError`` for a name that is none."""
    given = one(config, "iptables")
    if given and given not in IPTABLES:
        raise pytest.UsageError(f"--lab-iptables: {given!r} is no variant; there are {', '.join(IPTABLES)}")
    return given


def kube_proxy(config: pytest.Config) -> str:
    """Where the real kube-proxy is to be taken from, or nothing."""
    return one(config, "kube_proxy")


def feature_gates(config: pytest.Config) -> Mapping[str, bool]:
    """The feature gates to be switched in kube-proxy. Raises ``UsageError`` for what is none."""
    given = one(config, "feature_gates")
    if not given:
        return {}
    from proxylab.binaries.upstream import read_gates  # noqa: PLC0415 - a run's own room

    _needs_kube_proxy(config, "feature_gates")
    try:
        return read_gates(given)
    except ValueError as error:
        raise pytest.UsageError(f"--lab-feature-gates: {error}") from None


def kube_proxy_flags(config: pytest.Config) -> tuple[str, ...]:
    """Further flags for kube-proxy. Raises ``UsageError`` where none runs."""
    _needs_kube_proxy(config, "kube_proxy_flag")
    return tuple(_several(config, "kube_proxy_flag"))


def _needs_kube_proxy(config: pytest.Config, name: str) -> None:
    """Refuse what is said on the command line for nobody; environment and ini file speak of whatever may run."""
    chosen = engines(config)
    if config.getoption(f"lab_{name}") and not any(read_engine(each).is_upstream for each in chosen):
        said = f"--lab-{name.replace('_', '-')} is for kube-proxy, and --lab-engine says {', '.join(chosen)}"
        raise pytest.UsageError(f"{said}; add kube-proxy/iptables")


def repeats(config: pytest.Config) -> int:
    """How many times each probe runs. Raises ``UsageError`` for what is no such number."""
    given = one(config, "repeat") or "1"
    if not given.isdecimal() or not 1 <= int(given) <= _MOST_REPEATS:
        raise pytest.UsageError(f"--lab-repeat: {given!r} is not a number; write one from 1 to {_MOST_REPEATS}")
    return int(given)


def is_required(config: pytest.Config) -> bool:
    """Whether a run that could run nothing must fail."""
    return flag(config, "required")


def seed(config: pytest.Config) -> int:
    """What orders source ports and payloads. Raises ``UsageError`` for what is no number."""
    given = one(config, "seed") or "0"
    if not given.isdecimal():
        raise pytest.UsageError(f"--lab-seed: {given!r} is not a number; write one from 0 on")
    return int(given)


def bundle_directory(config: pytest.Config) -> Path | None:
    """Where evidence is kept; ``None`` where nobody wants any."""
    if flag(config, "no_bundles"):
        return None
    given = one(config, "bundle_dir")
    return Path(os.path.relpath(given or config.rootpath / _BUNDLES))


def report(config: pytest.Config) -> Path | None:
    """Where the page of the run is to be written, below where pytest was called; ``None`` where nobody wants one."""
    given = one(config, "report")
    return config.invocation_params.dir / given if given else None


def flag(config: pytest.Config, name: str) -> bool:
    """Whether an option is set that is one or not, in whichever way."""
    given = config.getoption(f"lab_{name}")
    variable = f"LAB_{name.upper()}"
    if given is None and variable in os.environ:
        return os.environ[variable] not in ("", "0")
    return bool(given or config.getini(f"lab_{name}"))


def _several(config: pytest.Config, name: str) -> list[str]:
    """The values of an option that may be repeated, in whichever way they are given."""
    said = config.getoption(f"lab_{name}") or os.environ.get(f"LAB_{name.upper()}", "").split()
    return list(said or config.getini(f"lab_{name}"))


def one(config: pytest.Config, name: str) -> str:
    """The one value of an option, in whichever way it is given; or nothing."""
    return str(
        config.getoption(f"lab_{name}") or os.environ.get(f"LAB_{name.upper()}") or config.getini(f"lab_{name}") or ""
    )
