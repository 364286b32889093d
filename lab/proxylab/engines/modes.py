"""The modes of the proxy: a line for each."""

from collections.abc import Mapping
from typing import Final

from proxylab.engines.embedded.iptables.mode import MODE as IPTABLES
from proxylab.engines.embedded.ipvs.mode import MODE as IPVS
from proxylab.engines.embedded.nftables.mode import MODE as NFTABLES
from proxylab.engines.embedded.userspace.mode import MODE as USERSPACE
from proxylab.engines.proxy_mode import ProxyMode

MODES: Final[Mapping[str, ProxyMode]] = {mode.word: mode for mode in (IPTABLES, NFTABLES, IPVS, USERSPACE)}
