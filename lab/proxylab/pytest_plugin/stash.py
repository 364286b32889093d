"""What the parts of the plugin know of an item.

Owns: the keys under which it is kept with the item.
Must not: hold anything itself.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from proxylab.client.open_lab import OpenLab

__all__ = ["OPEN"]

OPEN: "pytest.StashKey[OpenLab]" = pytest.StashKey()
"""The lab that an item has last used."""
