"""What a machine can do for a lab, as pure data.

Owns: ``Capability``, which the kernel room finds by trying and ``proxylab doctor`` shows, and the words for a no.
Must not: try anything.
"""

from proxylab.frozen import dataclass

__all__ = ["Capability", "in_words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing that the lab can use, and whether this machine has it.

    Attributes:
        name: in a few words, such as ``VXLAN devices``.
        found: what was found: a version, or the kernel's own words for no.
        works: whether it is there.
        cost: what cannot be done without it, or is slower.
        cure: what the user or an administrator can do about it.
        required: whether no lab can be built without it.
    """

    name: str
    found: str
    works: bool
    cost: str
    cure: str
    required: bool = False


def in_words(error: Exception) -> str:
    """What an error says: of one that the kernel gave, the kernel's words, and the file that it is about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
