"""From a user's options to the kube-proxy that a lab runs, for the command line and for pytest."""

from collections.abc import Callable, Mapping, Sequence

from proxylab.binaries.choose import Sources, obtain
from proxylab.engines.engine_names import read_engine
from proxylab.engines.protocol import Upstream

__all__ = ["read_gates", "upstream_for"]


def upstream_for(
    engine: str,
    where: str,
    tell: Callable[[str], None],
    *,
    flags: Sequence[str] = (),
    gates: Mapping[str, bool] | None = None,
    sources: Sources | None = None,
) -> Upstream | None:
    """The binary for an engine; ``None`` where the engine needs none.

    ``where`` is the user's value of ``--kube-proxy``, or empty; ``tell`` gets a line about each slow action.

    Raises:
        CapabilityError: no source has the binary.
    """
    name = read_engine(engine)
    if not name.is_upstream:
        return None
    binary = obtain(name, where, sources or Sources.of_user(), tell)
    return Upstream(str(binary.path), binary.version, tuple(flags), dict(gates or {}), where)


def read_gates(text: str) -> dict[str, bool]:
    """Read ``NAME=true,OTHER=false``, as in Kubernetes' own flag. Raises ``ValueError``."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.strip().partition("=")
        if not name or not sign or value.lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is not a feature gate; write NAME=true or NAME=false")
        gates[name] = value.lower() == "true"
    return gates
