"""transformers without PyTorch's compiler, sympy and sharded tensors: the same model, and all are there afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from onnxreg.converters.tasks.checkpoints.checkpoint import TOKENS, load_model

LOAD = """
import json, sys
import torch
from pathlib import Path
from onnxreg.converters import export_process
from onnxreg.converters.tasks.checkpoints.checkpoint import TOKENS, load_model
export_process.prepare()
model = load_model(Path({path!r}), TOKENS)
with torch.no_grad():
    values = model(torch.arange(8)[None]).logits.flatten().tolist()
heavy = ["torch.distributed.tensor", "torch._dynamo", "torch._dynamo.convert_frame", "sympy"]
loaded = [name for name in heavy if name in sys.modules]
from torch.distributed.tensor import DTensor
doubled = torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).tolist()
found = {{"values": values, "loaded": loaded, "shards": torch.distributed.is_available(), "doubled": doubled}}
print(json.dumps(found))
"""

PREPARE = """
import gc, os, sys
from onnxreg.cli.batch import pool
from onnxreg.cli.commands import export
from onnxreg.converters import export_process
assert "numpy" not in sys.modules
export_process.prepare()
print(gc.get_threshold()[0], os.environ["OPENBLAS_THREAD_TIMEOUT"])
gc.set_threshold(50_000)
export_process.prepare()
print(gc.get_threshold()[0])
"""

STAND_IN = """
import sys
import torch
from onnxreg.converters import export_process
with export_process.light_import():
    assert torch.distributed.is_available()
    assert "torch._dynamo" not in sys.modules
export_process.prepare()
with export_process.light_import():
    import torch._dynamo
    held = torch._dynamo
    from torch.compiler import disable
    marked = disable(len)
    assert marked is len and disable(reason="none")(len) is len
    assert not torch.distributed.is_available()
    assert not hasattr(torch._dynamo, "__not_there__")
    assert "torch._dynamo.convert_frame" not in sys.modules
    torch._dynamo.reset()
    assert "torch._dynamo.convert_frame" in sys.modules
assert torch.distributed.is_available()
assert held is not torch._dynamo and held.disable is torch._dynamo.disable
assert sys.modules["torch._dynamo"].reset is torch._dynamo.reset
print("whole")
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_is_prepared_before_numpy_is_imported() -> None:
    assert run(PREPARE).split() == ["10000", "4", "50000"]


@pytest.mark.more
def test_a_light_import_gives_the_same_model_and_leaves_pytorch_whole(bert: Path) -> None:
    found = json.loads(run(LOAD.format(path=str(bert))).splitlines()[-1])
    with torch.no_grad():
        expected = load_model(bert, TOKENS)(torch.arange(8)[None]).logits.flatten().tolist()
    assert found["values"] == expected
    assert found["loaded"] == []
    assert found["shards"]
    assert found["doubled"] == [2.0, 2.0]


def test_the_stand_in_is_there_only_if_allowed_and_gives_way_to_the_compiler() -> None:
    assert run(STAND_IN).splitlines()[-1] == "whole"
