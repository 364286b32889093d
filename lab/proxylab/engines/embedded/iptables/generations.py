"""Which shape the rules of a version of kube-proxy have."""

from typing import Final

from proxylab.engines.embedded.iptables.legacy import V1_23
from proxylab.engines.embedded.iptables.render import CURRENT
from proxylab.engines.embedded.iptables.shape import Shape

__all__ = ["shape_of"]

_SPLIT: Final = (1, 24)
"""The version in which KUBE-EXT- and KUBE-SVL- replaced KUBE-XLB-."""


def shape_of(version: tuple[int, ...]) -> Shape:
    """The shape of that version, or of the nearest one."""
    return V1_23 if version < _SPLIT else CURRENT
