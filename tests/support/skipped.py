"""The end of a run says why tests were skipped: a line for each reason, with how many and the cure.

A reason reads ``needs WHAT, DETAILS; CURE``. What a mode of the proxy never does is no lack, and has no cure: all of
that together is one line.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

__all__ = ["Skipped", "skip_lines"]

_PREFIX = "Skipped: "
_OF_A_MODE = re.compile(
    r"(in )?mode (iptables|ipvs|nftables|userspace) |needs a mode of the proxy |.* has no case for \w+$|"
    r"these are chains of mode "
)
_DETAILS = re.compile(r"[,:(]")


class Skipped:
    """The hook, which stands in for pytest's own list of skips: that has a line for each place."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = skip_lines(
            report.longrepr[2].removeprefix(_PREFIX)
            for report in terminalreporter.stats.get("skipped", ())
            if isinstance(report.longrepr, tuple)
        )
        if lines:
            terminalreporter.section("skipped: how many, why, and the cure")
        for line in lines:
            terminalreporter.write_line(line)


def skip_lines(reasons: Iterable[str]) -> list[str]:
    """A line for each reason, the most frequent first; of the same lack with other details, the first has the cure."""
    lacks: dict[str, list[str]] = defaultdict(list)
    of_modes: list[str] = []
    for reason in reasons:
        text = re.sub(r"^this machine lacks ", "needs ", " ".join(reason.split()))  # an error of the product
        if _OF_A_MODE.match(text):
            of_modes.append(text)
        else:
            lacks[_DETAILS.split(text.partition(";")[0])[0].strip()].append(text)
    lines = [_line(len(each), _said(lack, each)) for lack, each in sorted(lacks.items(), key=_most_first)]
    if of_modes:
        example = of_modes[0].partition(";")[0]
        lines.append(
            _line(len(of_modes), f'a mode of the proxy does not do it, which has no cure: "{example}", and such')
        )
    return lines


def _most_first(lack: tuple[str, list[str]]) -> tuple[int, str]:
    return -len(lack[1]), lack[0]


def _said(lack: str, texts: list[str]) -> str:
    """One reason in full; without its details where others have other details."""
    _, semicolon, cure = texts[0].partition(";")
    return texts[0] if len({*texts}) == 1 else f"{lack}{semicolon}{cure}"


def _line(number: int, text: str) -> str:
    return f"{number:>7,}  {text}"
