"""The tables of all expectations, in the order of judging. Others know an expectation by its row."""

from typing import Any, Final

from proxylab.verdict.case import Case
from proxylab.verdict.expectations import streams
from proxylab.verdict.expectations.arrivals import (
    BACKEND_OF_STREAM,
    BACKENDS,
    BACKENDS_OF_STREAM,
    ENDPOINT,
    ENDPOINT_OF_STREAM,
    SPREAD,
)
from proxylab.verdict.expectations.at import AT
from proxylab.verdict.expectations.conntrack import CONNTRACK, CONNTRACK_OF_STEP
from proxylab.verdict.expectations.http import HTTP
from proxylab.verdict.expectations.icmp_error import ERROR
from proxylab.verdict.expectations.metrics import METRICS
from proxylab.verdict.expectations.name import NAME
from proxylab.verdict.expectations.outcome import ICMP, OUTCOME, UNDECIDED
from proxylab.verdict.expectations.reply import REPLY, WHOLE
from proxylab.verdict.expectations.source import SOURCE, SOURCE_OF_STREAM
from proxylab.verdict.findings import Expectation
from proxylab.verdict.step_case import StepCase, StreamCase

OF_PROBES: Final[tuple[Expectation[Case, Any], ...]] = (
    NAME,
    OUTCOME,
    ICMP,
    ERROR,
    ENDPOINT,
    REPLY,
    BACKENDS,
    SOURCE,
    SPREAD,
    AT,
    HTTP,
    CONNTRACK,
    UNDECIDED,
)

OF_STREAMS: Final[tuple[Expectation[StreamCase, Any], ...]] = (
    BACKEND_OF_STREAM,
    BACKENDS_OF_STREAM,
    SOURCE_OF_STREAM,
    streams.LOST,
    streams.LOST_ON_LINK,
    streams.REJECTED,
    streams.RESETS,
    streams.DELAY,
    ENDPOINT_OF_STREAM,
    WHOLE,
)

OF_STEPS: Final[tuple[Expectation[StepCase, Any], ...]] = (CONNTRACK_OF_STEP, METRICS)
"""The expectations of a step that are about no stream."""
