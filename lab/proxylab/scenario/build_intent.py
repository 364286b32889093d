"""Build the frozen objects of probes from shapes that passed every check."""

from proxylab.scenario.conditions import conditions_of
from proxylab.scenario.document import Location
from proxylab.scenario.model import Exceptional, Probe
from proxylab.scenario.reading import placed
from proxylab.scenario.schema.exception import ExceptionShape
from proxylab.scenario.schema.probe import ProbeShape

__all__ = ["build_probe"]


def build_probe(shape: ProbeShape, location: Location) -> Probe:
    """The probe at ``location``."""
    return Probe(
        name=shape.name,
        source=shape.source,
        target=shape.target,
        send=shape.send,
        expect=placed(shape.expect, location["expect"]),
        exceptions=tuple(_exception(each, location["except"][index]) for index, each in enumerate(shape.exceptions)),
        position=location["name"].key.position,
    )


def _exception(shape: ExceptionShape, location: Location) -> Exceptional:
    return Exceptional(
        when=conditions_of(shape.when),
        version=shape.when.version,
        expect=placed(shape.expect, location["expect"]),
        because=shape.because,
        position=location.key.position,
    )
