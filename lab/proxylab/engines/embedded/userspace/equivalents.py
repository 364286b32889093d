"""Mutants of rules of mode userspace that no packet of any scenario can tell from the rule, each with its proof."""

from typing import Final

from proxylab.engines.embedded.mutation import Equivalent

EQUIVALENTS: Final = (
    Equivalent(
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("-p of TCP and UDP",),
        "the port is the one of the proxy's process, which the kernel chooses, so that no sender can dial its number",
    ),
    Equivalent(
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("without --state",),
        "the rule accepts packets of open connections besides, and each firewall under which a NodePort works does so",
    ),
)
