"""The same checkpoint in another directory, another process and another hash seed gives the same bytes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CODE = """
import sys
from pathlib import Path
from support.exports import export_android
from onnxreg.schema.core.digest import Descriptor
from onnxreg.schema.core.digest import Digest

source, suite, workspace = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
workspace.mkdir(parents=True)
options = dict(int8_embeddings=True, eval_suite=suite)
draft = export_android(source, workspace, name="acme/x", options=options)
files = {path: (workspace / path).read_bytes() for path in draft.paths()}
measured = {path: Descriptor(Digest.of(data), len(data)) for path, data in files.items()}
(workspace / "openmed-onnx.json").write_bytes(draft.manifest(measured).encode())
"""


TEXT = "the patient w20 w21 was seen"
FIXTURES = [
    {"id": f"private-{number}", "text": TEXT, "gold_spans": [{"start": 12, "end": 19, "label": "NAME"}]}
    for number in range(40)
]


@pytest.mark.more
@pytest.mark.parametrize("family", ["bert", pytest.param("xlm-roberta", marks=pytest.mark.large)])
def test_two_exports_give_the_same_bytes(
    family: str, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    source = make_checkpoint(family)
    places = {"1": tmp_path / "here", "2": tmp_path / "some" / "where" / "else"}
    running = []
    for seed, place in places.items():
        checkpoint = shutil.copytree(source, place / f"checkpoint-{seed}")
        suite = place / f"suite-{seed}.json"
        suite.write_text(json.dumps(FIXTURES))
        command = [sys.executable, "-c", CODE, str(checkpoint), str(suite), str(place / f"out-{seed}")]
        tests = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "HOME": str(place / "home"), "PYTHONPATH": tests}
        running.append(subprocess.Popen(command, env=environment))
    assert [process.wait() for process in running] == [0, 0]
    first, second = (
        {path.name: path.read_bytes() for path in (place / f"out-{seed}").rglob("*") if path.is_file()}
        for seed, place in places.items()
    )
    assert first.keys() == second.keys() >= {"model_int8.onnx.json"}
    assert [name for name in first if first[name] != second[name]] == []
    for text in (str(tmp_path), "checkpoint-1", "checkpoint-2", "out-1", "out-2", "suite-", "private-"):
        assert not [name for name, data in first.items() if text.encode() in data]
