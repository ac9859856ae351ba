"""The package's adapter for Transformers.js: `pipeline()` gets the resolved, verified file, and again without a network."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import Export
from e2e.test_hub_clients import (  # noqa: F401
    CHROMIUM,
    MODEL,
    PAGE,
    TEXT,
    export,
    labels,
    modules,
    output,
    plain,
    site,
)
from e2e.test_web_client import serving
from support.servers import client_package
from support.servers.regserve import Site

pytestmark = pytest.mark.more
QUERY = json.dumps({"formats": ["onnx-int8"]})
GRAPH = "model_int8.onnx"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_package.build(tmp_path_factory.mktemp("adapter")) / "dist"


def test_in_node(
    site: Site,  # noqa: F811
    export: Export,  # noqa: F811
    labels: dict[str, list[str]],  # noqa: F811
    modules: Path,  # noqa: F811
    dist: Path,
    tmp_path: Path,
) -> None:
    script = Path(__file__).with_name("adapter_client.mjs")
    words = [script, modules, dist, tmp_path / "store", site.url, MODEL, TEXT, QUERY]
    answer = output(["node", *words], site, tmp_path)
    assert answer == {"labels": plain(export, labels[GRAPH]), "path": GRAPH, "missing": "not-found"}
    lines = [json.loads(line)["path"] for line in site.lines]
    assert not [path for path in lines if "/resolve/" in path]
    site.lines.clear()
    assert output(["node", *words], site, tmp_path) == answer
    assert not [line for line in site.lines if "/blobs/" in line]
    words[4] = "http://127.0.0.1:9"
    offline = output(["node", *words], site, tmp_path)
    assert (offline["labels"], offline["missing"]) == (answer["labels"], "remote")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
def test_in_a_browser(
    site: Site,  # noqa: F811
    export: Export,  # noqa: F811
    labels: dict[str, list[str]],  # noqa: F811
    modules: Path,  # noqa: F811
    dist: Path,
    tmp_path: Path,
) -> None:
    root, script = tmp_path / "site", Path(__file__).with_name("adapter_page.mjs")
    root.mkdir()
    for name in ("@huggingface", "onnxruntime-common", "onnxruntime-web"):
        (root / name).symlink_to(modules / name)
    (root / "client").symlink_to(dist)
    own = {"@onnxreg/client": "/client/onnxreg.js", "@onnxreg/client/transformers": "/client/transformers.js"}
    (root / "index.html").write_text(PAGE.replace('"imports": {', f'"imports": {{{json.dumps(own)[1:-1]},'))
    with serving(root) as url:
        page = f"{url}/index.html"
        words: list[Any] = ["node", script, modules, CHROMIUM, tmp_path / "profile", page, site.url]
        for _ in range(2):
            answer = output([*words, MODEL, TEXT, QUERY], site, tmp_path)
            assert answer == {"labels": plain(export, labels[GRAPH]), "path": GRAPH}
            fetched = [line for line in site.lines if "/blobs/" in line]
            site.lines.clear()
    assert fetched == []
