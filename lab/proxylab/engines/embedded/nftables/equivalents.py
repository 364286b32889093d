"""Mutants of rules of mode nftables that no packet of any scenario can tell from the rule, each with its proof."""

from typing import Final

from proxylab.engines.embedded.mutation import Equivalent

_TRANSLATIONS: Final = (
    "endpoint-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
    "service-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "service-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
)

EQUIVALENTS: Final = (
    Equivalent(
        _TRANSLATIONS,
        ("meta l4proto of TCP and UDP",),
        "a packet comes into the chain only by elements of the same service port, whose keys have its protocol",
    ),
)
