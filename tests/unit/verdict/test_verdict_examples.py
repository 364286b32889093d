"""The examples in the docstrings of the verdict room are true."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["lab.verdict.statistics", "lab.verdict.words"])
def test_examples(module: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted
    assert not failed
