"""The options of the plugin for somebody at a desk: a lab that stays, waits or is entered, and frames of every item.

Owns: their names, in the three ways of ``options``.
Must not: act on any of them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pytest

from proxylab.pytest_plugin.options import flag, one

__all__ = ["DESK", "add_interactive_options", "has_pcap", "is_kept", "is_paused", "pcap_directory", "shell_netns_name"]

DESK: Final = "proxylab-desk"
"""Under this name the plugin is registered that looks after failed items."""

_PCAPS: Final = ".proxylab/pcap"
_INI: Final[Mapping[str, Literal["string", "bool"]]] = {
    "keep": "bool",
    "pause_on_fail": "bool",
    "shell": "string",
    "pcap": "bool",
    "pcap_dir": "string",
}


def add_interactive_options(parser: pytest.Parser) -> None:
    """Add them, all of which begin with ``--lab-``, and their ini keys."""
    group = parser.getgroup("proxylab")
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
    for name, kind in _INI.items():
        parser.addini(f"lab_{name}", f"as --lab-{name.replace('_', '-')}", type=kind)


def is_kept(config: pytest.Config) -> bool:
    """Whether the lab of a failed item stays."""
    return flag(config, "keep")


def is_paused(config: pytest.Config) -> bool:
    """Whether the run waits after a failed item. Raises ``UsageError`` where nobody could end the wait."""
    return flag(config, "pause_on_fail") and _at_a_terminal(config, "--lab-pause-on-fail")


def shell_netns_name(config: pytest.Config) -> str:
    """Where a shell is opened after a failed item, or nothing. Raises ``UsageError`` likewise."""
    netns_name = one(config, "shell")
    return netns_name if netns_name and _at_a_terminal(config, "--lab-shell") else ""


def has_pcap(config: pytest.Config) -> bool:
    """Whether every item leaves its frames."""
    return flag(config, "pcap")


def pcap_directory(config: pytest.Config) -> Path:
    """Where they are left."""
    return Path(os.path.relpath(one(config, "pcap_dir") or config.rootpath / _PCAPS))


def _at_a_terminal(config: pytest.Config, option: str) -> bool:
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError(f"{option}: the workers of xdist have no terminal; leave -n out, or use --lab-keep")
    return True
