"""Several processes on one registry: no event lost, the chain intact."""

import subprocess
import sys
from pathlib import Path

from onnxreg.registry import Registry

PUBLISHER = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact

root, who, name, count = sys.argv[1:]
registry = Registry(Path(root))
for number in range(int(count)):
    with registry.workspace() as workspace:
        (workspace / "model.onnx").write_text(f"{who} {number}")
        registry.add(Draft(name, workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
"""


def test_processes_publishing_to_one_model_lose_nothing(registry: Registry, tmp_path: Path) -> None:
    processes, each = 4, 12
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, registry.store.root, str(who), "acme/busy", str(each)]
        )
        for who in range(processes)
    ]
    assert [process.wait() for process in running] == [0] * processes
    lines = registry.log("acme/busy")
    assert len(lines) == processes * each
    assert len({line.event.id for line in lines}) == processes * each
    assert not registry.verify().damages
