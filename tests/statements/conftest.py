"""Pieces of a test's statement and what was measured of them; tests of one file share them."""

import pytest
from work import measured


@pytest.fixture(scope="module")
def work(request):
    return measured(request.module.statement)


@pytest.fixture(scope="module")
def fast(work):
    return work
