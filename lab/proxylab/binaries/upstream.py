"""From a user's words to the kube-proxy that a lab runs.

Owns: ``upstream_for``, the one way there for the command line and for pytest.
Must not: print.
"""

from collections.abc import Callable, Mapping, Sequence

from proxylab.binaries.choose import Sources, obtain
from proxylab.engines.names import read_engine
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
    """What runs behind an engine's name; ``None`` where it needs no binary.

    Args:
        engine: its name, which is right.
        where: what the user said of where to take it from; empty for nothing.
        tell: is told, in a line, what is going on when it takes long.
        flags: further ones for its command line.
        gates: feature gates that are to be switched.
        sources: where binaries may come from; by default the user's.

    Raises:
        CapabilityError: no binary can be had.
    """
    name = read_engine(engine)
    if not name.is_upstream:
        return None
    binary = obtain(name, where, sources or Sources.of_user(), tell)
    return Upstream(str(binary.path), binary.version, tuple(flags), dict(gates or {}), where)


def read_gates(text: str) -> dict[str, bool]:
    """Read ``NAME=true,OTHER=false``, as Kubernetes' own flag has them. Raises ``ValueError``."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.strip().partition("=")
        if not name or not sign or value.lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is no feature gate; write NAME=true or NAME=false")
        gates[name] = value.lower() == "true"
    return gates
