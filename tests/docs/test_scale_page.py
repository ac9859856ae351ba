"""The program on the page of scale runs against a server on this machine."""

import re
import subprocess
import sys
from pathlib import Path

from support.docs.pages import REPOSITORY
from support.registries import grow
from support.servers import regserve

from onnxreg.registry.search.catalogs import publish

PAGE = (REPOSITORY / "docs" / "dev" / "scale.md").read_text("utf-8")
DOCUMENTED = "http://127.0.0.1:8080"


def test_duckdb_answers_from_the_catalog_of_a_server(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert DOCUMENTED in program
    registry = grow.grow(tmp_path / "models", 3, 2, manifests=True)
    publish(registry.store, None)
    with regserve.running(registry.store.root) as site:
        command = [sys.executable, "-c", program.replace(DOCUMENTED, site.url)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    for name in registry.store.names():
        assert name in done.stdout
    assert "float32" in done.stdout and "int8" in done.stdout and "98" in done.stdout
