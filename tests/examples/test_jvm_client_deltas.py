"""The client in examples/jvm-client continues an update by a delta that was interrupted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import jvm
from support.registries import retrained
from support.servers import static
from support.servers.faults import proxy
from support.servers.web_client import Call

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.schema.core.progress import SILENT
from onnxreg.schema.core.ref import Ref

NAME = "acme/pii"
FLOAT32 = {"query": {"formats": ["onnx"]}}
pytestmark = pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)


@pytest.fixture(scope="module")
def client() -> Iterator[Call]:
    with jvm.running() as call:
        yield call


def test_a_cancelled_delta_continues(client: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrained, "ELEMENTS", 2_400_000)
    registry = Registry(tmp_path / "home")
    store = tmp_path / "store"
    with static.serve(registry.store.root) as url, proxy(url) as site:
        registry.add(retrained.draft(tmp_path / "draft0", 0))
        client(site.url, store, "update", NAME, FLOAT32)
        registry.add(retrained.draft(tmp_path / "draft1", 1))
        make_deltas(registry, registry.store, Ref(NAME), (), SILENT)
        stopped = client(site.url, store, "update", NAME, FLOAT32, {"cancel_at": 5_000_000})
        assert stopped["error"] == "cancelled"
        (partial,) = (store / "partial").iterdir()
        assert 4_000_000 < partial.stat().st_size < 9_000_000
        site.seen.clear()
        outcome = client(site.url, store, "update", NAME, FLOAT32)
    arrival = next(row for row in outcome["arrivals"] if row["path"] == "model.onnx")
    assert (arrival["deltas"], arrival["reason"]) == (1, "")
    assert outcome["progress"][0][0] >= 4_000_000
    whole = outcome["files"]["model.onnx"].removeprefix("sha256:")
    assert not any(whole in path for _, path in site.seen)
