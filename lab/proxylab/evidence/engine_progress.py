"""How an engine does, as it was found: pure data.

Owns: ``Progress``, what an engine knows of itself, and ``ProxyRecord``, what was seen of one in its node.
Must not: judge. Which of it is right follows from what else was seen (``proxylab.diagnosis``).
"""

from proxylab.frozen import dataclass

__all__ = ["Progress", "ProxyRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an engine has come.

    Attributes:
        runs: whether it lives.
        reflects: the revision of the store that the rules in the kernel reflect; ``None`` where they do not tell.
        due: the newest revision that it would have to reflect.
        trouble: what went wrong last, in its own words; empty where nothing did.
    """

    runs: bool
    reflects: int | None
    due: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRecord:
    """The engine of one node.

    Attributes:
        node: the node.
        progress: by its own account, and that of the kernel.
        healthz: the status of what it answers to GET /healthz; ``None`` where nobody answers.
        asked: where that was asked; empty where its configuration switches it off.
        eligible: whether it says that balancers may send to the node (KEP-3836).
    """

    node: str
    progress: Progress
    healthz: int | None = None
    asked: str = ""
    eligible: bool = True
