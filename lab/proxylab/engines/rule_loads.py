"""A node on which the programs that load rules fail or are slow, as a step of a scenario asks for.

The real kube-proxy runs nft and iptables-restore by its PATH, and the embedded engines run them, too. So a script
stands in for each of them in the node's private /run. It asks a file there what becomes of a load. Whatever loads no
rules, such as a listing or a question for the version, passes.
"""

import shutil
from collections.abc import Mapping
from typing import Final

from proxylab.kernel.sandbox.iptables_links import FOLDER, PATH
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.scenario.change import LoadFault, RuleLoads
from proxylab.timing import Deadline

_SCRIPTS: Final = "/run/loads"
_FAULT: Final = f"{_SCRIPTS}/fault"
_RESTORE: Final = ("iptables-restore", "ip6tables-restore")
_NFT: Final = "nft"
_NAMES: Final = (_NFT, *_RESTORE)
_SECONDS: Final = 10.0

_SCRIPT: Final = """\
#!/bin/sh
loads=LOADS
for each; do
    case $each in
        -f | --file) loads=yes ;;
        -c | --check | -t | --test | -V | --version) loads=no; break ;;
    esac
done
if [ $loads = yes ] && read -r fault seconds <FAULT; then
    case $fault in
        fail) echo "NAME: the lab lets each load of rules fail" >&2; exit 1 ;;
        delay) sleep "$seconds" ;;
    esac
fi
exec PROGRAM "$@"
"""


class NodeLoads:
    """The programs that load rules on one node.

    Args:
        launcher: writes the scripts into the node.
        programs: the paths of the node's programs by the links that lead to them (``iptables_links.links_to``).
    """

    def __init__(self, launcher: Launcher, netns: NetNs, netns_name: str, programs: Mapping[str, str]) -> None:
        self._launcher = launcher
        self._netns = netns
        self._netns_name = netns_name
        self._programs = {name: programs.get(f"{FOLDER}/{name}") or shutil.which(name, path=PATH) for name in _NAMES}
        self._stands_in = False
        # kube-proxy looks for nft once, when it starts, and the path that it finds then must lead to the script later.
        path = self._programs[_NFT]
        self.links: dict[str, str] = {} if path is None else {f"{FOLDER}/{_NFT}": path}
        """By which commands find nft, and after the first fault the scripts."""

    def instead_of(self, command: str) -> str:
        """What to run in place of a command that loads rules."""
        if not self._stands_in:
            return command
        name = command.rpartition("/")[2]
        if not name.endswith("-restore"):
            return f"{_SCRIPTS}/{_NFT}"
        return f"{_SCRIPTS}/{_RESTORE[name.startswith('ip6')]}"

    async def become(self, change: RuleLoads) -> None:
        """Let loads fail, be slow or work from now on."""
        fault = LoadFault.WORK.value if change.action is None else change.action.value
        if change.delay is not None:
            fault = f"delay {change.delay / 1000:g}"
        there = {name: path for name, path in self._programs.items() if path is not None}
        files = {} if self._stands_in else {f"{_SCRIPTS}/{name}": _script(name, path) for name, path in there.items()}
        self._stands_in = True
        self.links = {f"{FOLDER}/{name}": f"{_SCRIPTS}/{name}" for name in there}
        await self._launcher.run(
            self._netns,
            ("true",),
            netns_name=self._netns_name,
            files={_FAULT: f"{fault}\n", **files},
            links=self.links,
            deadline=Deadline.after(_SECONDS),
        )


def _script(name: str, program: str) -> str:
    values = {"LOADS": "no" if name == _NFT else "yes", "FAULT": _FAULT, "NAME": name, "PROGRAM": program}
    text = _SCRIPT
    for word, value in values.items():
        text = text.replace(word, value)
    return text
