"""What a run of the catalogue tests: the proxy, with all versions, and the catalogue itself."""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

import proxylab
from proxylab.engines.engine_names import ENGINES
from proxylab.engines.protocol import EngineChoice
from proxylab.features.conformance.conformance_table import TestedProxy, catalogue_digest


def digest_of(files: Iterable[Path]) -> str:
    """What tells this catalogue from others, by all its files, wherever it lies."""
    return catalogue_digest({"/".join(each.parts[-2:]): each.read_bytes() for each in files})


def tested_proxy(choice: EngineChoice, kernel: str, *, scenarios: int, catalogue: str, begun: str) -> TestedProxy:
    """The proxy that a run tests; an embedded one has the version that it behaves like."""
    return TestedProxy(
        engine=choice.name,
        version=choice.upstream.version if choice.upstream else f"v{'.'.join(map(str, choice.version))}",
        options=replace(choice, name=ENGINES[0]).options,
        kernel=kernel,
        binary=choice.binary,
        proxylab=proxylab.__version__,
        scenarios=scenarios,
        catalogue=catalogue,
        begun=begun,
    )
