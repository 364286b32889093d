"""The examples in the docstrings about spreads and words are true."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["proxylab.addresses", "proxylab.statistics", "proxylab.evidence.words"])
def test_examples(module: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted
    assert not failed
