"""A model of 8 GiB takes no more memory than one of 64 MiB. Needs 33 GiB of disk."""

import pytest
from benchmarks import large

MAX_GROWTH_MIB = 16
"""Anonymous memory, of which whole tensors (1 GiB), pieces or lists of them would take more."""


@pytest.mark.large
def test_memory_is_flat():
    small, large_model = large.peaks(large.SMALL), large.peaks(large.LARGEST)
    assert len(small) == 8
    growth = {verb: peak - small[verb] for verb, peak in large_model.items()}
    assert {verb: mebibytes for verb, mebibytes in growth.items() if mebibytes > MAX_GROWTH_MIB} == {}
