"""`onnxreg.converters.export`: one call, nothing left but what was asked for, and nothing heavy imported before it is needed."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.sampling import sampled

from onnxreg.converters import export
from onnxreg.converters.request import run
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.text import TextTask
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", task="")


@pytest.fixture(autouse=True)
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go in these tests."""
    place = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def model_of(graph: Any) -> Any:
    return onnx.ModelProto.FromString(graph)


def quantized(graph: Any) -> bool:
    return any(node.op_type == "MatMulInteger" for node in model_of(graph).graph.node)


def test_without_an_output_the_bytes_of_the_last_graph_come_back(encoder, scratch):
    full, small = export(str(encoder)), export(str(encoder), quantize=True)
    assert isinstance(full, bytes) and isinstance(small, bytes)
    assert (quantized(full), quantized(small)) == (False, True)
    assert export(encoder, output="") == full
    assert model_of(export(encoder, opset=17)).opset_import[0].version == 17
    assert list(scratch.iterdir()) == []


@pytest.mark.more
def test_int8_is_written_beside_full_precision(encoder, tmp_path):
    target = tmp_path / "new" / "deep" / "embeddings.onnx"
    written = export(encoder, "pooling", target, quantize=True)
    assert written == target.with_name("embeddings_int8.onnx")
    assert sorted(path.name for path in target.parent.iterdir()) == ["embeddings.onnx", written.name]
    assert (quantized(target.read_bytes()), quantized(written.read_bytes())) == (False, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    assert export(encoder, "pooling", str(target)) == target


@pytest.mark.more
def test_a_directory_gets_what_an_app_needs_and_the_folders_of_the_checkpoint(
    make_checkpoint, tmp_path, monkeypatch
):
    """The work is done in the output too, which may be another file system than its parent."""
    monkeypatch.chdir(tmp_path)
    source = make_checkpoint("bert", task="SequenceClassification")
    assert export(source, "text-classification", "there/") == Path("there/model.onnx")
    names = ["config.json", "id2label.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in Path("there").iterdir()) == names
    assert export(source, "text-classification", Path("there")) == Path("there/model.onnx")
    source, workspaces = make_checkpoint("bert", task=""), []
    modules = [{"type": "m.Transformer", "path": ""}, {"type": "m.Pooling", "path": "1_Pooling"}]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_Pooling").mkdir(parents=True)
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')

    def spied(plan: Any, workspace: Path) -> Any:
        workspaces.append(workspace)
        return run(plan, workspace)

    monkeypatch.setattr("onnxreg.converters.request.run", spied)
    target = tmp_path / "there"
    assert export(source, output=target) == target / "model.onnx"
    assert (target / "1_Pooling" / "config.json").is_file()
    assert workspaces[0].is_relative_to(target)


def test_an_unknown_task_lists_the_known_ones(encoder):
    with pytest.raises(InputError, match="no task is called 'embeding'") as caught:
        export(encoder, "embeding")
    known = [name for name, task in task_catalog.TASKS.items() if issubclass(task, TextTask)]
    assert str(caught.value.hint).startswith(f"did you mean embedding? one of: {', '.join(known)}")


@pytest.mark.parametrize(
    "arguments",
    [{"opset": 0}, {"opset": 99}, {"task": None}, {"opset": "17"}, {"opset": None}, {"output": "noext"}],
    ids=str,
)
def test_arguments_that_cannot_be_leave_nothing(encoder, tmp_path, arguments):
    with pytest.raises((InputError, ConversionError)):
        export(str(encoder), **{"output": tmp_path / "x" / "model.onnx", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_what_was_there(encoder, tmp_path, monkeypatch):
    target = tmp_path / "model.onnx"
    target.write_bytes(b"mine")

    def broken(*_: Any) -> Any:
        raise ConversionError("it broke")

    monkeypatch.setattr("onnxreg.converters.passes.quantization.OnnxDynamicQuantization.apply", broken)
    with pytest.raises(ConversionError, match="it broke"):
        export(encoder, output=target, quantize=True)
    assert target.read_bytes() == b"mine" and list(tmp_path.iterdir()) == [target]


@pytest.mark.more
def test_nothing_is_printed(encoder, capfd):
    export(encoder, "pooling", quantize=True)
    assert capfd.readouterr() == ("", "")


@pytest.mark.more
def test_objects_are_exported_as_the_checkpoint_that_they_would_be_and_stay_as_they_are(encoder):
    """The caller's model is in half precision and in training mode; the graph has its weights in float32."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    assert export((AutoModel.from_pretrained(encoder), tokenizer), "default") == export(encoder, "default")
    model = AutoModel.from_pretrained(encoder, dtype=torch.float16).train()
    model.config.use_cache = True
    before = {name: (value, value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    config = dict(vars(model.config))
    assert quantized(export([model, tokenizer], "default", quantize=True))
    assert all(module.training for module in model.modules())
    assert vars(model.config) == config
    for name, value in model.state_dict(keep_vars=True).items():
        same, copy = before[name]
        assert value is same and value.dtype == torch.float16 and torch.equal(value, copy)
    with pytest.raises(InputError):
        export((model, tokenizer), "pooling")


@pytest.mark.parametrize("given", [("a", "b"), (1,), [], (None, None), "./nowhere"])
def test_what_is_no_checkpoint_is_refused(given):
    with pytest.raises(NotFoundError if given == "./nowhere" else InputError):
        export(given)


HEAVY = {"torch", "transformers", "onnx", "onnxruntime", "onnxscript", "safetensors", "tokenizers"}


def loaded(code: str) -> set[str]:
    """Packages, and modules of onnxreg, that some code loads in a process of its own."""
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(done.stdout.splitlines()[-1])
    return {name if name.startswith("onnxreg.") else name.partition(".")[0] for name in modules}


def test_the_package_loads_nothing_but_itself_until_export_is_asked_for():
    found = loaded("import onnxreg.converters")
    assert not found & {*HEAVY, "numpy", "pydantic", "onnxreg.schema.manifest.manifest"}
    code = """import onnxreg.converters as it; assert callable(it.export)
try: it.nothing
except AttributeError as error: assert "nothing" in str(error)"""
    assert not loaded(code) & {"torch", "transformers", "onnxruntime"}


@pytest.mark.parametrize("module", sampled(["engine.run_plan", "request", "families.export_family"], 3))
def test_an_export_loads_nothing_heavy_before_it_begins(module):
    found = loaded(f"import onnxreg.converters.{module}")
    assert f"onnxreg.converters.{module}" in found
    assert not found & HEAVY


def test_a_task_is_placed_without_the_parts_of_a_profile(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    asked = f"ExportRequest({str(tmp_path)!r}, name='tiny', task='default')"
    found = loaded(f"from onnxreg.converters.request import ExportRequest; {asked}.plan()")
    assert "onnxreg.converters.tasks.text" in found
    assert not found & {*HEAVY, "onnxreg.converters.evaluation.metrics"}
