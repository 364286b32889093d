"""Build the frozen objects of steps from shapes that passed every check."""

from proxylab.scenario.build_intent import Known, build_conntrack, build_probe, build_source
from proxylab.scenario.changes import Moment
from proxylab.scenario.conditions import conditions_of
from proxylab.scenario.document import Location
from proxylab.scenario.model import Count, Step, StepException, StepExpect, StreamExpect, Until
from proxylab.scenario.schema.change import UntilShape
from proxylab.scenario.schema.step import CountShape, StepExpectShape, StepShape, StreamExpectShape

__all__ = ["build_step"]


def build_step(shape: StepShape, location: Location, moment: Moment, known: Known) -> Step:
    """The step at ``location``; ``known`` is for its probes."""
    return Step(
        name=shape.name,
        change=moment.change,
        until=_until(shape.until, location["until"]) if shape.until else None,
        expect=_expect(shape.expect, location["expect"]),
        probes=tuple(build_probe(probe, location["probes"][index], known) for index, probe in enumerate(shape.probes)),
        exceptions=tuple(
            StepException(
                when=conditions_of(each.when),
                version=each.when.version,
                expect=_expect(each.expect, location["except"][index]["expect"]),
                because=each.because,
                position=location["except"][index].key.position,
            )
            for index, each in enumerate(shape.exceptions)
        ),
        position=location["name"].key.position,
    )


def _until(shape: UntilShape, location: Location) -> Until:
    return Until(
        engines=shape.engines,
        rules=shape.rules,
        conntrack=build_conntrack(shape.conntrack) if shape.conntrack else None,
        balancers={name: tuple(nodes) for name, nodes in shape.balancers.items()},
        backends=shape.backends,
        elapsed=shape.elapsed,
        within=shape.within,
        position=location.key.position,
    )


def _expect(shape: StepExpectShape, location: Location) -> StepExpect:
    return StepExpect(
        streams={name: _stream(each, location[name]) for name, each in shape.streams.items()},
        conntrack=build_conntrack(shape.conntrack) if shape.conntrack else None,
        position=location.key.position,
        positions={str(key): location[str(key)].key.position for key in location.keys},
    )


def _stream(shape: StreamExpectShape, location: Location) -> StreamExpect:
    return StreamExpect(
        backend=shape.backend,
        backends=tuple(shape.backends) if shape.backends is not None else None,
        source=build_source(shape.source),
        lost=_count(shape.lost),
        rejected=_count(shape.rejected),
        resets=_count(shape.resets),
        delay=shape.delay,
        position=location.key.position,
        positions={str(key): location[str(key)].key.position for key in location.keys},
    )


def _count(shape: CountShape | None) -> Count | None:
    return Count(at_least=shape.at_least, at_most=shape.at_most) if shape is not None else None
