"""Reads mutated scenario files: each must give a Scenario or its mistakes, within a time limit.

The command is ``python tests/support/fuzz.py FILE… --files 100000``.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proxylab.errors import ScenarioError
from proxylab.scenario.load import parse_scenario

__all__ = ["fuzz"]

SECONDS: Final = 5.0
"""The longest that one small file may take on a busy machine."""

_MARKS: Final = "[]{}:,-&*!|>'#%@?~\n \t"
_SNIPPETS: Final = (*_MARKS, '"', "\n- ", ": ", "---\n", "null", "-1", "1e9", "<<: *a", "&a ", "é", "\x00")


def fuzz(seeds: Sequence[str], files: int, seed: int) -> Iterator[str]:
    """Read ``files`` mutations of the seeds.

    Args:
        seeds: texts to begin with.
        files: how many mutations to read.
        seed: of the random numbers: the same seed gives the same files.

    Yields:
        A report for each file that caused anything but a Scenario or a ScenarioError, or took too long.
    """
    dice = random.Random(seed)
    for number in range(files):
        text = _mutated(dice, seeds)
        begin = time.process_time()
        try:
            parse_scenario(text, "fuzzed")
        except ScenarioError:
            pass
        except Exception as error:
            yield f"file {number} of seed {seed}: {type(error).__name__}: {error}\n{text}"
        if (taken := time.process_time() - begin) > SECONDS:
            yield f"file {number} of seed {seed}: took {taken:.1f} s\n{text}"


def _mutated(dice: random.Random, seeds: Sequence[str]) -> str:
    """A seed with one to four pieces removed, inserted, repeated, or copied from another seed."""
    text = dice.choice(seeds)
    for _ in range(dice.randint(1, 4)):
        start = dice.randint(0, len(text))
        end = min(len(text), start + dice.choice((0, 1, 3, 10, 60)))
        other = dice.choice(seeds)
        start_of_copy = dice.randint(0, len(other))
        piece = dice.choice(
            (dice.choice(_SNIPPETS), text[start:end] * 2, other[start_of_copy : start_of_copy + 40], "")
        )
        text = text[:start] + piece + text[end:]
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz from the command line; returns 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="fuzz.py", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--files", type=int, default=100_000, help="how many mutations to read (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default: %(default)s)")
    options = parser.parse_args(arguments)
    texts = [path.read_text(encoding="utf-8") for path in options.seeds]
    found = 0
    for report in fuzz(texts, options.files, options.seed):
        found += 1
        sys.stdout.write(f"{report}\n")
    sys.stdout.write(f"{options.files} files read, {found} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
