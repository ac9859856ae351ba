"""The children of one small encoder, made once."""

from pathlib import Path

import pytest
from support.prove.children import make_all


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_all(tmp_path_factory.mktemp("family"))
