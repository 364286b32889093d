"""The plugin's options for interactive use: keep a failed item's lab, pause, open a shell, and save captures."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pytest

from proxylab.pytest_plugin.options import flag, one

__all__ = [
    "ON_FAILURE",
    "add_interactive_options",
    "has_pcap",
    "is_kept",
    "is_paused",
    "pcap_directory",
    "shell_netns_name",
]

ON_FAILURE: Final = "proxylab-on-failure"
"""The name under which ``OnFailure`` is registered."""

_PCAPS: Final = ".proxylab/pcap"
_INI: Final[Mapping[str, Literal["string", "bool"]]] = {
    "keep": "bool",
    "pause_on_fail": "bool",
    "shell": "string",
    "pcap": "bool",
    "pcap_dir": "string",
}


def add_interactive_options(parser: pytest.Parser) -> None:
    """Add the options, all of which begin with ``--lab-``, and their ini keys."""
    group = parser.getgroup("proxylab")
    group.addoption(
        "--lab-keep",
        action="store_true",
        default=None,
        help="keep the lab of a failed test running (see `proxylab ps`)",
    )
    group.addoption(
        "--lab-pause-on-fail",
        action="store_true",
        default=None,
        help="after a failed test, wait for Enter; until then other terminals can use its lab",
    )
    group.addoption(
        "--lab-shell", metavar="NODE|POD|HOST", help="after a failed test, open a shell in this node, pod or host"
    )
    group.addoption(
        "--lab-pcap", action="store_true", default=None, help="save the frames of every test as a pcapng file"
    )
    group.addoption(
        "--lab-pcap-dir", metavar="DIRECTORY", help="where to save pcapng files (default: .proxylab/pcap below rootdir)"
    )
    for name, kind in _INI.items():
        parser.addini(f"lab_{name}", f"same as --lab-{name.replace('_', '-')}", type=kind)


def is_kept(config: pytest.Config) -> bool:
    """Whether the lab of a failed item keeps running."""
    return flag(config, "keep")


def is_paused(config: pytest.Config) -> bool:
    """Whether the run waits after a failed item. Raises ``UsageError`` under xdist, which has no terminal."""
    return flag(config, "pause_on_fail") and _at_a_terminal(config, "--lab-pause-on-fail")


def shell_netns_name(config: pytest.Config) -> str:
    """The node, pod or host for a shell after a failed item, or "". Raises ``UsageError`` under xdist."""
    netns_name = one(config, "shell")
    return netns_name if netns_name and _at_a_terminal(config, "--lab-shell") else ""


def has_pcap(config: pytest.Config) -> bool:
    """Whether to save the frames of every item."""
    return flag(config, "pcap")


def pcap_directory(config: pytest.Config) -> Path:
    """Where to save the frames."""
    return Path(os.path.relpath(one(config, "pcap_dir") or config.rootpath / _PCAPS))


def _at_a_terminal(config: pytest.Config, option: str) -> bool:
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError(f"{option}: xdist workers have no terminal; leave out -n, or use --lab-keep")
    return True
