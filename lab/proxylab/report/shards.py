"""Shards: the files of a run in parts of about the same time, for machines side by side (``--shard``).

The same files and the same recorded times give the same shards on every machine, in whichever order the files are
found. The record is an output of an earlier run: its JSON document, or the JUnit XML that pytest writes.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

from msgspec import Struct

_SHARD: Final = re.compile(r"(\d{1,4})/(\d{1,4})")


class Shard(Struct, frozen=True):
    """The part of a run with this index, from 1 on, of so many parts."""

    index: int
    of: int

    @classmethod
    def read(cls, text: str) -> "Shard":
        """The shard that is written ``I/N``. Raises ``ValueError``."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.index <= shard.of:
            raise ValueError(f"{text!r} is not valid; give I/N, such as 2/4 for the second of four shards")
        return shard

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def files(self, files: Sequence[str], seconds: Mapping[str, float]) -> frozenset[str]:
        """The files of this shard: the slowest first, each goes where the least is to do.

        Args:
            files: of all shards.
            seconds: of files in an earlier run (``recorded_seconds``). A file without a record counts as the median.
        """
        known = {file: seconds[_key(file)] for file in files if _key(file) in seconds}
        usual = sorted(known.values())[len(known) // 2] if known else 1.0
        loads = [0.0] * self.of
        found: list[list[str]] = [[] for _ in loads]
        for file in sorted(set(files), key=lambda each: (-known.get(each, usual), each)):
            lightest = loads.index(min(loads))
            loads[lightest] += known.get(file, usual)
            found[lightest].append(file)
        return frozenset(found[self.index - 1])


def recorded_seconds(text: str) -> dict[str, float]:
    """The time of each file in an earlier run, from its JSON document or its JUnit XML.

    The keys are those of JUnit's ``classname``, which is in every dialect: ``scenarios.nodeport.x.lab.yaml``.
    Raises ``ValueError``.
    """
    found: dict[str, float] = defaultdict(float)
    try:
        if text.lstrip().startswith("<"):
            for case in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - the user's own runs wrote it
                found[case.get("classname", "")] += float(case.get("time", 0))
        else:
            for scenario in json.loads(text)["scenarios"]:
                found[_key(scenario["file"])] += float(scenario["seconds"])
    except (ElementTree.ParseError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"neither a JSON document of `proxylab run` nor JUnit XML: {error}") from None
    return dict(found)


def _key(file: str) -> str:
    """The file as JUnit's ``classname`` spells it: without ``.py``, and with dots."""
    return file.removeprefix("./").removesuffix(".py").replace("/", ".")


def missing_shards(given: Sequence[str]) -> list[str]:
    """The shards that are not among those given, each written ``I/N``."""
    shards = {Shard.read(each) for each in given}
    every = (Shard(index, of) for of in sorted({each.of for each in shards}) for index in range(1, of + 1))
    return [str(each) for each in every if each not in shards]
