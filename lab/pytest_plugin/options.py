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

from lab.engines.names import ENGINES, IPTABLES, read_engine

__all__ = [
<<<<<<< HEAD
    "DESK",
    "add_options",
    "bundle_directory",
    "engines",
    "has_pcap",
    "iptables",
    "is_kept",
    "is_paused",
    "is_required",
    "kube_proxy",
    "pcap_directory",
    "repeats",
    "seed",
    "shell_place",
]

DESK: Final = "proxylab-desk"
"""Under this name the plugin is registered that looks after failed items."""

_BUNDLES: Final = ".proxylab/bundles"
_PCAPS: Final = ".proxylab/pcap"
=======
    "add_options",
    "bundle_directory",
    "engines",
    "iptables",
    "is_required",
    "kube_proxy",
    "repeats",
    "report",
    "seed",
]

_BUNDLES: Final = ".proxylab/bundles"
_INI: Final[Mapping[str, Literal["string", "bool"]]] = {
    "iptables": "string",
    "kube_proxy": "string",
    "repeat": "string",
    "seed": "string",
    "bundle_dir": "string",
    "report": "string",
    "no_bundles": "bool",
    "required": "bool",
}
"""The keys of an ini file that are like their options."""

>>>>>>> main
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
    group.addoption(
        "--lab-kube-proxy",
        metavar="WHERE",
        help="where kube-proxy comes from: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
        "module:VERSION (default: what `proxylab engines` lists)",
    )
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
<<<<<<< HEAD
    parser.addini("lab_iptables", "as --lab-iptables", type="string")
    parser.addini("lab_kube_proxy", "as --lab-kube-proxy", type="string")
    parser.addini("lab_repeat", "as --lab-repeat", type="string")
    parser.addini("lab_seed", "as --lab-seed", type="string")
    parser.addini("lab_bundle_dir", "as --lab-bundle-dir", type="string")
    parser.addini("lab_no_bundles", "as --lab-no-bundles", type="bool")
    parser.addini("lab_required", "as --lab-required", type="bool")
    _add_options_of_desk(parser, group)


def _add_options_of_desk(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Those for somebody who wants to look at what failed, or at every frame."""
    group.addoption(
        "--lab-keep",
        action="store_true",
        default=None,
        help="let the lab of a failed item stay (see `proxylab ps`)",
    )
    group.addoption(
        "--lab-pause-on-fail",
        action="store_true",
        default=None,
        help="wait after a failed item, with its lab standing for other terminals, until Enter is pressed",
    )
    group.addoption("--lab-shell", metavar="PLACE", help="open a shell in this node, pod or host after a failed item")
    group.addoption(
        "--lab-pcap", action="store_true", default=None, help="leave the frames of every item as a pcapng file"
    )
    group.addoption(
        "--lab-pcap-dir", metavar="DIRECTORY", help="where they are left (default: .proxylab/pcap below rootdir)"
    )
    parser.addini("lab_keep", "as --lab-keep", type="bool")
    parser.addini("lab_pause_on_fail", "as --lab-pause-on-fail", type="bool")
    parser.addini("lab_shell", "as --lab-shell", type="string")
    parser.addini("lab_pcap", "as --lab-pcap", type="bool")
    parser.addini("lab_pcap_dir", "as --lab-pcap-dir", type="string")
=======
    for name, kind in _INI.items():
        parser.addini(f"lab_{name}", f"as --lab-{name.replace('_', '-')}", type=kind)
>>>>>>> main


def engines(config: pytest.Config) -> tuple[str, ...]:
    """The engines that were asked for, each once. Raises ``UsageError`` for a name that is none."""
    given = config.getoption("lab_engine") or os.environ.get("LAB_ENGINE", "").split() or config.getini("lab_engine")
    for name in given:
        try:
            read_engine(name)
        except ValueError as error:
            raise pytest.UsageError(f"--lab-engine: {error}") from None
    return tuple(dict.fromkeys(given)) or ENGINES[:1]


def iptables(config: pytest.Config) -> str:
    """The variant of iptables that was asked for, or nothing. Raises ``UsageError`` for a name that is none."""
    given = _one(config, "iptables")
    if given and given not in IPTABLES:
        raise pytest.UsageError(f"--lab-iptables: {given!r} is no variant; there are {', '.join(IPTABLES)}")
    return given


def kube_proxy(config: pytest.Config) -> str:
    """Where the real kube-proxy is to be taken from, or nothing."""
    return _one(config, "kube_proxy")


def repeats(config: pytest.Config) -> int:
    """How many times each probe runs. Raises ``UsageError`` for what is no such number."""
    given = _one(config, "repeat") or "1"
    if not given.isdecimal() or not 1 <= int(given) <= _MOST_REPEATS:
        raise pytest.UsageError(f"--lab-repeat: {given!r} is not a number from 1 to {_MOST_REPEATS}")
    return int(given)


def is_required(config: pytest.Config) -> bool:
    """Whether a run that could run nothing must fail."""
    return _flag(config, "required")


def seed(config: pytest.Config) -> int:
    """What orders source ports and payloads. Raises ``UsageError`` for what is no number."""
    given = _one(config, "seed") or "0"
    if not given.isdecimal():
        raise pytest.UsageError(f"--lab-seed: {given!r} is not a number from 0 on")
    return int(given)


def bundle_directory(config: pytest.Config) -> Path | None:
    """Where evidence is kept; ``None`` where nobody wants any."""
    if _flag(config, "no_bundles"):
        return None
    given = _one(config, "bundle_dir")
    return Path(os.path.relpath(given or config.rootpath / _BUNDLES))


<<<<<<< HEAD
def is_kept(config: pytest.Config) -> bool:
    """Whether the lab of a failed item stays."""
    return _flag(config, "keep")


def is_paused(config: pytest.Config) -> bool:
    """Whether the run waits after a failed item. Raises ``UsageError`` where nobody could end the wait."""
    return _flag(config, "pause_on_fail") and _at_a_terminal(config, "--lab-pause-on-fail")


def shell_place(config: pytest.Config) -> str:
    """Where a shell is opened after a failed item, or nothing. Raises ``UsageError`` likewise."""
    place = _one(config, "shell")
    return place if place and _at_a_terminal(config, "--lab-shell") else ""


def has_pcap(config: pytest.Config) -> bool:
    """Whether every item leaves its frames."""
    return _flag(config, "pcap")


def pcap_directory(config: pytest.Config) -> Path:
    """Where they are left."""
    return Path(os.path.relpath(_one(config, "pcap_dir") or config.rootpath / _PCAPS))


def _at_a_terminal(config: pytest.Config, option: str) -> bool:
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError(f"{option}: the workers of xdist have no terminal; leave -n out, or use --lab-keep")
    return True
=======
def report(config: pytest.Config) -> Path | None:
    """Where the page of the run is to be written, below where pytest was called; ``None`` where nobody wants one."""
    given = _one(config, "report")
    return config.invocation_params.dir / given if given else None
>>>>>>> main


def _flag(config: pytest.Config, name: str) -> bool:
    given = config.getoption(f"lab_{name}")
    variable = f"LAB_{name.upper()}"
    if given is None and variable in os.environ:
        return os.environ[variable] not in ("", "0")
    return bool(given or config.getini(f"lab_{name}"))


def _one(config: pytest.Config, name: str) -> str:
    return str(
        config.getoption(f"lab_{name}") or os.environ.get(f"LAB_{name.upper()}") or config.getini(f"lab_{name}") or ""
    )
