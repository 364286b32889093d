"""The users that a test of the kernel runs as: root and an ordinary user, or one where both show the same."""

import pytest
from sandboxed import USERS

__all__ = ["BOTH", "EITHER"]

BOTH = pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)
"""For what users, capabilities and mounts decide."""

# In its own network namespaces root has the same kernel: the ordinary user's run, with fewer rights, shows the same.
EITHER = pytest.mark.parametrize(
    "ordinary",
    [
        pytest.param(ordinary, id=user, marks=[] if ordinary else [pytest.mark.thorough])
        for user, ordinary in USERS.items()
    ],
)
"""For what a packet meets once the lab stands; root's run is thorough."""
