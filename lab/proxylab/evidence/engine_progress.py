"""The state of an engine: ``Progress``, as the engine reports it, and ``ProxyRecord``, as the lab observed it.

Pure data; ``proxylab diagnose`` judges it.
"""

from proxylab.encoding import Record


class Progress(Record, frozen=True, kw_only=True):
    """How far an engine has synchronised.

    Attributes:
        runs: whether its process lives.
        reflects: the revision of the store that the rules in the kernel reflect; ``None`` if unknown.
        due: the newest revision that it must reflect.
        trouble: its last error, in its own words; empty without one.
    """

    runs: bool
    reflects: int | None
    due: int
    trouble: str = ""


class ProxyRecord(Record, frozen=True, kw_only=True):
    """The engine of one node.

    Attributes:
        node: the node.
        engine: its name, such as ``embedded/iptables``; the scenario or a step may have changed it.
        progress: by its own report and the kernel's rules.
        healthz: the status of its answer to GET /healthz; ``None`` without an answer.
        asked: the URL of /healthz; empty where its configuration switches it off.
        eligible: whether it reports that load balancers may send to the node (KEP-3836).
    """

    node: str
    engine: str
    progress: Progress
    healthz: int | None = None
    asked: str = ""
    eligible: bool = True

    @property
    def mode(self) -> str:
        """Its proxy mode."""
        return self.engine.rpartition("/")[2]
