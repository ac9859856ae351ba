"""`onnxreg.converters.export`: one call, and nothing left but what was asked for."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.sampling import sampled

from onnxreg.converters import export
from onnxreg.converters.profiles.task_profiles import TextTask
from onnxreg.converters.request import run
from onnxreg.converters.source import location
from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError, RemoteError

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", task="")


@pytest.fixture
def objects(encoder: Path) -> tuple[Any, Any]:
    """A model in half precision, in training mode, with its tokenizer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(encoder, dtype=torch.float16).train()
    return model, AutoTokenizer.from_pretrained(encoder)


@pytest.fixture(autouse=True)
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go in these tests."""
    place = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def session(graph: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def contract(graph: Any) -> dict[str, list[Any]]:
    found = session(graph)
    return {value.name: value.shape for value in (*found.get_inputs(), *found.get_outputs())}


def feed(graph: Any) -> dict[str, Any]:
    ids = np.array([[2, 7, 9, 11, 3]], np.int64)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {value.name: given[value.name] for value in session(graph).get_inputs()}


def outputs(graph: Any) -> list[Any]:
    return list(session(graph).run(None, feed(graph)))


def quantized(graph: bytes) -> bool:
    import onnx

    return any(node.op_type == "MatMulInteger" for node in onnx.ModelProto.FromString(graph).graph.node)


def test_embedding_tables_are_int8_on_request(encoder: Path) -> None:
    plain = export(encoder, "pooling", quantize=True)
    small = export(encoder, "pooling", quantize=True, int8_embeddings=True)
    tables = [
        {
            tensor.name
            for tensor in onnx.ModelProto.FromString(graph).graph.initializer
            if tensor.data_type == 1 and len(tensor.dims) == 2
        }
        for graph in (plain, small)
    ]
    assert any("embeddings" in name for name in tables[0])
    assert {name for name in tables[1] if not name.endswith("_scales")} == set()
    assert len(small) < len(plain)
    with pytest.raises(InputError, match="of the INT8 artifact"):
        export(encoder, int8_embeddings=True)


def test_the_package_is_light_until_export_is_asked_for() -> None:
    code = (
        "import sys, onnxreg.converters as it\n"
        "heavy = {'torch', 'transformers', 'onnx', 'onnxruntime', 'numpy', 'pydantic'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "assert callable(it.export)\n"
        "assert not {'torch', 'transformers', 'onnxruntime'} & sys.modules.keys()\n"
        "try: it.nothing\n"
        "except AttributeError as error: assert 'nothing' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_an_output_the_bytes_of_the_last_graph_come_back(encoder: Path, scratch: Path) -> None:
    full, small = export(str(encoder)), export(str(encoder), quantize=True)
    assert isinstance(full, bytes) and isinstance(small, bytes)
    assert (quantized(full), quantized(small)) == (False, True)
    assert export(encoder, output="") == full
    assert list(scratch.iterdir()) == []


def test_int8_is_written_beside_full_precision(encoder: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "embeddings.onnx"
    written = export(encoder, "pooling", target, quantize=True)
    assert written == target.with_name("embeddings_int8.onnx")
    assert sorted(path.name for path in target.parent.iterdir()) == ["embeddings.onnx", written.name]
    assert (quantized(target.read_bytes()), quantized(written.read_bytes())) == (False, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    assert export(encoder, "pooling", str(target)) == target
    assert contract(target)["embeddings"] == ["batch", 32]


def test_a_directory_gets_what_an_app_needs(
    make_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = make_checkpoint("bert", task="SequenceClassification")
    assert export(source, "text-classification", "there/") == Path("there/model.onnx")
    names = ["config.json", "id2label.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in Path("there").iterdir()) == names
    assert export(source, "text-classification", Path("there")) == Path("there/model.onnx")


def test_folders_of_a_checkpoint_are_made_in_the_output(
    make_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is done in the output too, which may be another file system than its parent."""
    source = make_checkpoint("bert", task="")
    modules = [{"type": "m.Transformer", "path": ""}, {"type": "m.Pooling", "path": "1_Pooling"}]
    (source / "modules.json").write_text(json.dumps(modules))
    cls_beside(source)
    target, workspaces = tmp_path / "there", []
    target.mkdir()

    def spied(plan: Any, workspace: Path) -> Any:
        workspaces.append(workspace)
        return run(plan, workspace)

    monkeypatch.setattr("onnxreg.converters.api.run", spied)
    assert export(source, output=target) == target / "model.onnx"
    assert (target / "1_Pooling" / "config.json").is_file()
    assert workspaces[0].is_relative_to(target)


def test_an_unknown_task_lists_the_known_ones(encoder: Path) -> None:
    with pytest.raises(InputError, match="no task is called 'embeding'") as caught:
        export(encoder, "embeding")
    known = [name for name, task in task_catalog.TASKS.items() if issubclass(task, TextTask)]
    assert str(caught.value.hint).startswith(f"did you mean embedding? one of: {', '.join(known)}")


@pytest.mark.parametrize("opset", sampled([14, 15, 17, 18], 2))
def test_the_opset_is_the_one_asked_for(opset: int, encoder: Path) -> None:
    import onnx

    graph = export(encoder, opset=opset)
    assert isinstance(graph, bytes)
    assert {entry.domain: entry.version for entry in onnx.ModelProto.FromString(graph).opset_import} == {
        "": opset
    }


@pytest.mark.parametrize("opset", [0, 99])
def test_an_opset_that_is_not_there(opset: int, encoder: Path, tmp_path: Path) -> None:
    with pytest.raises((InputError, ConversionError)):
        export(encoder, output=tmp_path / "x" / "model.onnx", opset=opset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [{"task": None}, {"opset": "17"}, {"opset": None}, {"output": "noext"}], ids=str
)
def test_an_argument_of_another_kind_is_the_requests_fault(encoder: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        export(str(encoder), **arguments)


def test_the_callers_model_stays_as_it_is(objects: tuple[Any, Any]) -> None:
    import torch

    model, _ = objects
    model.config.use_cache = True
    before = {name: (value, value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    config, modes = dict(vars(model.config)), [module.training for module in model.modules()]
    export(objects, "default", quantize=True)
    export(list(objects), "default")
    assert [module.training for module in model.modules()] == modes and all(modes)
    assert {value.dtype for value in model.parameters()} == {torch.float16}
    assert {value.device.type for value in model.parameters()} == {"cpu"}
    assert vars(model.config) == config
    for name, value in model.state_dict(keep_vars=True).items():
        assert value is before[name][0] and torch.equal(value, before[name][1])


def test_objects_are_exported_as_the_checkpoint_that_they_would_be(encoder: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    loaded = AutoModel.from_pretrained(encoder), AutoTokenizer.from_pretrained(encoder)
    assert export(loaded, "default") == export(encoder, "default")


def test_a_tuple_is_pooled(objects: tuple[Any, Any]) -> None:
    graph = export(objects, "pooling")
    assert contract(graph)["embeddings"] == ["batch", 32]
    states = outputs(export(objects, "default"))[0]
    np.testing.assert_allclose(outputs(graph)[0], states.mean(axis=1), atol=1e-5)


@pytest.mark.more
def test_a_tuple_is_pooled_as_its_directory_says(make_checkpoint: Make) -> None:
    from transformers import AutoModel, AutoTokenizer

    source = make_checkpoint("bert", task="")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    loaded = AutoModel.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    states = outputs(export(loaded, "default"))[0]
    np.testing.assert_allclose(outputs(export(loaded, "pooling"))[0], states[:, 0], atol=1e-5)


def cls_beside(directory: Path) -> Path:
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return directory


@pytest.mark.more
def test_a_model_built_in_memory_takes_nothing_from_the_working_directory(
    objects: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects[0].name_or_path = ""
    monkeypatch.chdir(cls_beside(tmp_path / "here"))
    states = outputs(export(objects, "default"))[0]
    np.testing.assert_allclose(outputs(export(objects, "pooling"))[0], states.mean(axis=1), atol=1e-5)


@pytest.mark.more
def test_a_tuple_is_pooled_as_its_hub_id_says(
    objects: tuple[Any, Any], make_checkpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = cls_beside(make_checkpoint("bert", task=""))
    asked = set()

    def download(name: str, revision: str | None, *_: Any, **__: Any) -> Path:
        asked.add((name, revision))
        return snapshot

    monkeypatch.setattr(location, "fetch", download)
    objects[0].name_or_path, objects[0].config._commit_hash = "acme/encoder", "0123abcd"
    states = outputs(export(objects, "default"))[0]
    assert not asked
    np.testing.assert_allclose(outputs(export(objects, "pooling"))[0], states[:, 0], atol=1e-5)
    assert ("acme/encoder", "0123abcd") in asked


@pytest.mark.parametrize("name", ["acme/encoder", "./gone/encoder"])
def test_unreadable_pooling_is_refused(
    name: str, objects: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    objects[0].name_or_path = name
    with pytest.raises(RemoteError if name == "acme/encoder" else NotFoundError):
        export(objects, "pooling")


@pytest.mark.parametrize("task", ["text-classification", "question-answering", "token-classification"])
def test_a_base_model_has_no_head(
    task: str, objects: tuple[Any, Any], encoder: Path, tmp_path: Path, scratch: Path
) -> None:
    for source in (objects, encoder):
        with pytest.raises(InputError, match=r"config\.json says BertModel"):
            export(source, task, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == [] == list(scratch.iterdir())


def test_a_failure_leaves_what_was_there(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model.onnx"
    target.write_bytes(b"mine")

    def broken(*_: Any) -> Any:
        raise ConversionError("it broke")

    monkeypatch.setattr("onnxreg.converters.passes.quantization.OnnxDynamicQuantization.apply", broken)
    with pytest.raises(ConversionError, match="it broke"):
        export(encoder, output=target, quantize=True)
    assert target.read_bytes() == b"mine" and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("given", [("a", "b"), (1,), [], (None, None)])
def test_objects_other_than_model_and_tokenizer_are_refused(given: Any) -> None:
    with pytest.raises(InputError):
        export(given)


def test_a_place_that_is_none() -> None:
    with pytest.raises(NotFoundError):
        export("./nowhere")


@pytest.mark.more
def test_nothing_is_printed(objects: tuple[Any, Any], capfd: pytest.CaptureFixture[str]) -> None:
    export(objects, "pooling", quantize=True)
    assert capfd.readouterr() == ("", "")
