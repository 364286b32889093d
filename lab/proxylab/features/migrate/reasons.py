"""Why two proxies answer a question differently, and what to do about it.

Either Kubernetes promises another thing of each, by mode or version, and rows of the oracle say so; or one of them
departs from the promise. Departures that are known have a link to where they are documented.
"""

from collections.abc import Sequence
from typing import Final

from proxylab.encoding import Record
from proxylab.oracle.rows import rows


class Statement(Record, frozen=True):
    """A sentence, and the document that states it; or what it was observed on."""

    text: str
    because: str


class ReasonOfChange(Record, frozen=True, kw_only=True):
    """Why answers differ.

    Attributes:
        statements: what is promised of each proxy, or what one of them is known to do instead.
        advice: what to do before the change.
        is_documented: whether a document or a known departure explains it; otherwise a proxy has a fault.
    """

    statements: tuple[Statement, ...]
    advice: str
    is_documented: bool


_ADVICE: Final = {
    "unused-port": "Let clients dial declared ports only: how soon they fail at others depends on the mode.",
    "echo-request": "Do not watch a Service by ping. Connect to one of its ports instead.",
    "unassigned-address": "Remove addresses of deleted Services from clients: one mode lets them wait, and another one "
    "leads them past the node.",
    "node-port-addresses-default": "Set nodePortAddresses in the configuration of the new proxy to the networks that "
    "clients use, or let clients dial the address of the Node object.",
    "node-port-on-localhost": "Let programs on nodes dial the node's address or the cluster IP instead of localhost.",
    "no-endpoint-from-the-node": "Let programs on nodes treat a refusal as an error like silence: modes differ.",
    "terminating-endpoints": "Check that Pods go on serving until their grace period ends.",
    "node-hints": "Watch the load of each endpoint: flows that stay on a node are not shared evenly.",
    "zone-hints": "Watch the load of each zone: flows that stay in it are not shared evenly over the cluster.",
    "livez": "Let checks of the proxy use a path that both versions have.",
    "leaving-node": "Check how your load balancers treat a node that is about to leave.",
}
_KEEP: Final = "Decide before the change which clients rely on what the old proxy does; the new one keeps the promise."
_LOSE: Final = "Do not change before this is mended, or its clients have another way: the new proxy breaks the promise."
_NEITHER: Final = "Both proxies depart from the promise, in different ways; look at each by `proxylab audit`."

_IPVS_LOCAL: Final = Statement(
    "Mode ipvs leads traffic to all endpoints where policy Local leaves a node none.",
    "https://github.com/kubernetes/kubernetes/issues/97081",
)
_DEPARTURES: Final = {
    ("ipvs", "external-local-elsewhere"): _IPVS_LOCAL,
    ("ipvs", "internal-local-elsewhere"): _IPVS_LOCAL,
    ("ipvs", "no-frontend"): Statement(
        "In mode ipvs a node owns the addresses of Services, and rejects ports that no Service has.",
        "https://github.com/kubernetes/kubernetes/issues/72236",
    ),
    ("ipvs", "out-of-range"): Statement(
        "Since 1.25 mode ipvs drops only what a node sends from the load balancer's address.",
        "https://github.com/kubernetes/kubernetes/issues/119656",
    ),
}
"""What a mode is known to do in place of a row."""


def promised_otherwise(before: Sequence[str], after: Sequence[str]) -> ReasonOfChange | None:
    """The reason by which two proxies have different promises, from the rows of each; ``None`` if they have the same.

    The rows that decide are those of one subject that hold by mode or version.
    """
    known = rows()
    chosen = [each for each in dict.fromkeys((*before, *after)) if (each in before) is not (each in after)]
    deciding = [each for each in chosen if known[each].modes or known[each].versions]
    if not chosen:
        return None
    subjects = [known[each].subject for each in deciding or chosen]
    advice = next((_ADVICE[each] for each in subjects if each in _ADVICE), _KEEP)
    statements = tuple(Statement(known[each].text, known[each].because) for each in deciding or chosen)
    return ReasonOfChange(statements=statements, advice=advice, is_documented=True)


def departed(follows: Sequence[str], *, before: str, after: str) -> ReasonOfChange:
    """The reason by which a proxy departs from what is promised of both, which ``follows`` from rows.

    ``before`` and ``after`` are the modes of the proxies that depart; empty for one that keeps the promise.
    """
    found = [_DEPARTURES[mode, row] for mode in (before, after) for row in follows if (mode, row) in _DEPARTURES]
    promised = [Statement(rows()[each].text, rows()[each].because) for each in follows]
    advice = _NEITHER if before and after else _LOSE if after else _KEEP
    return ReasonOfChange(
        statements=tuple(dict.fromkeys((*found, *promised))), advice=advice, is_documented=bool(found)
    )
