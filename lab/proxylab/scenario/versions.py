"""Versions of Kubernetes, and ``VersionRange`` as an author writes it."""

import re
from typing import Final

from proxylab.encoding import Record

Version = tuple[int, ...]
"""Major, minor and, except for patch 0, the patch, so that tuples compare in the order of the releases."""

_VERSION: Final = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,5}))?")
_BOUND: Final = re.compile(r"(>=|<)?\s*([v0-9.]+)")


class VersionRange(Record, frozen=True, kw_only=True):
    """Every version from ``since`` on and before ``before``; ``None`` is no bound."""

    since: Version | None = None
    before: Version | None = None

    def __contains__(self, version: Version) -> bool:
        return (self.since is None or self.since <= version) and (self.before is None or version < self.before)

    def meets(self, other: "VersionRange") -> bool:
        """Whether some version is in both."""
        ends = [bound for bound in (self.before, other.before) if bound is not None]
        begins = [bound for bound in (self.since, other.since) if bound is not None]
        return not ends or not begins or max(begins) < min(ends)

    def __str__(self) -> str:
        bounds = ((">=", self.since), ("<", self.before))
        return " ".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in bounds if bound is not None)


def read_version(text: str) -> Version:
    """A version such as ``1.34``, ``v1.34`` or ``v1.34.2``. Raises ``ValueError``."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version")
    patch = int(found[3] or 0)
    return (int(found[1]), int(found[2]), *((patch,) if patch else ()))


def release_version(release: str) -> Version:
    """The version of a kernel's release, such as ``6.1.0-56-amd64``; ``(0, 0)`` if it begins with none."""
    found = _VERSION.match(release)
    return read_version(found[0]) if found else (0, 0)


def read_range(text: str) -> VersionRange:
    """A range such as ``<1.30``, ``>=1.29``, ``>=1.29 <1.33.6``, or ``1.34`` for that minor, ``1.34.2`` for that patch.

    Raises:
        ValueError: the text is not a range, or the range is empty.

    Example:
        >>> str(read_range("v1.34"))
        '>=1.34 <1.35'
    """
    bounds = re.split(r"(?<=[0-9])\s+(?=[<>])", text.strip())
    found = [_BOUND.fullmatch(bound) for bound in bounds]
    read = [(each[1] or "", read_version(each[2])) for each in found if each is not None]
    if len(read) == 1 and not read[0][0]:
        (only,) = (version for _, version in read)
        return VersionRange(since=only, before=(*only[:-1], only[-1] + 1))
    ends = dict(read)
    if len(read) < len(bounds) or len(ends) < len(read) or "" in ends:
        raise ValueError(f"{text!r} is not a range of versions")
    made = VersionRange(since=ends.get(">="), before=ends.get("<"))
    if made.since is not None and made.before is not None and made.since >= made.before:
        raise ValueError(f"{text!r} contains no version")
    return made
