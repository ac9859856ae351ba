"""`ModelBuilder`: a tiny Llama in every precision, and what is refused."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime_genai
import pytest
from support import in_process
from support.graphs import load, run, run_and_compare
from support.sampling import sampled

from onnxreg.converters.engine.plan import from_value, plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.passes import model_builder, pass_catalog
from onnxreg.converters.passes.graph_passes import OnnxOpVersionConversion
from onnxreg.converters.passes.model_builder import Decoder, ModelBuilder
from onnxreg.schema.core.errors import ConversionError, InputError

MOST = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.05, "int4": 0.5}
"""The largest difference of a logit from the checkpoint's."""


def make_llama(directory: Path, make_checkpoint: Any, words: int) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"vocab_size": words, "num_key_value_heads": 2, "max_position_embeddings": 64}
    config = LlamaConfig(bos_token_id=2, eos_token_id=3, **sizes)
    LlamaForCausalLM(config).save_pretrained(directory)
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


@pytest.fixture(scope="module")
def llama(make_checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"), make_checkpoint, 96)


@pytest.fixture(scope="module", autouse=True)
def builder_in_process() -> Iterator[None]:
    """The model builder runs in this process. One test starts it as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_builder, "subprocess", in_process)
        yield


Build = Callable[[str], tuple[Any, Any]]


@pytest.fixture(scope="module")
def build(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build the model in a precision, once: it takes seconds. Tests only read the files."""

    @cache
    def build(precision: str) -> tuple[Any, Any]:
        directory = tmp_path_factory.mktemp(precision) / "made"
        return run("decoder", ModelBuilder(precision=precision), Decoder(llama, directory))

    return build


def test_the_tokenizer_is_the_one_of_the_checkpoint(llama, build, tmp_path):
    """Also if transformers builds another one for its class: here it drops the normalizer."""
    from tokenizers import Tokenizer

    source = Path(shutil.copytree(llama, tmp_path / "llama"))
    changes: dict[str, dict[str, Any]] = {
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"},
        "tokenizer.json": {"normalizer": {"type": "Lowercase"}},
    }
    for name, change in changes.items():
        (source / name).write_text(json.dumps(json.loads((source / name).read_text()) | change))
    run("decoder", ModelBuilder(precision="fp32"), Decoder(source, tmp_path / "made"))
    classes = {tmp_path / "made": "GPT2Tokenizer", build("fp32")[0]: "PreTrainedTokenizerFast"}
    for directory, name in classes.items():
        config = json.loads((directory / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == name and "backend" not in config
    tokenizer = Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
    assert tokenizer.encode("the PATIENT was w40").tokens == ["the", "patient", "was", "w40"]


@pytest.mark.parametrize("precision", sampled(MOST, 3))
def test_every_precision_is_what_was_asked_agrees_and_generates(precision, build):
    target, step = build(precision)
    names = sorted(path.name for path in target.iterdir())
    assert {"model.onnx", "model.onnx.data", "genai_config.json"} <= set(names)
    assert step.result["files"] == names
    assert bool(step.result["weights_quantized"]) is precision.startswith("int")
    assert step.result["parity"]["outputs"]["logits"]["max_abs_diff"] < MOST[precision]
    settings = json.loads((target / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only"} & settings.keys()
    assert sorted(path.name for path in target.parent.iterdir()) == ["made"]
    loaded = onnxruntime_genai.Model(str(target))
    options = onnxruntime_genai.GeneratorParams(loaded)
    options.set_search_options(max_length=8, min_length=8)
    generator = onnxruntime_genai.Generator(loaded, options)
    generator.append_tokens([4, 5, 6])
    while not generator.is_done():
        generator.generate_next_token()
    assert len(generator.get_sequence(0)) == 8


def attributes(path: Path, name: str) -> set[int]:
    graph = onnx.load(path, load_external_data=False).graph
    nodes = (node for node in graph.node if node.op_type == "MatMulNBits")
    return {attribute.i for node in nodes for attribute in node.attribute if attribute.name == name}


ASKED = [("int4", 16, 1), ("int4", 128, 4), ("int8", 64, 1), ("int8", 32, None)]


@pytest.mark.parametrize("asked", sampled(ASKED, 4), ids=str)
def test_block_size_and_accuracy_level_are_those_of_the_graph(asked, llama, tmp_path):
    precision, size, level = asked
    work = ModelBuilder(precision=precision, int4_block_size=size, int4_accuracy_level=level)
    _, step = run("decoder", work, Decoder(llama, tmp_path / "made"))
    made = tmp_path / "made" / "model.onnx"
    assert attributes(made, "block_size") == {size} == {step.result["block_size"]}
    assert attributes(made, "accuracy_level") == {level or 4} == {step.result["accuracy_level"]}
    assert attributes(made, "bits") == {int(precision.removeprefix("int"))}


def test_another_block_size_than_asked_for_is_refused(llama, build):
    """As onnxruntime-genai 0.18 gave one, without a word, for an option under its old name."""
    built, _ = build("int4")
    with pytest.raises(ConversionError, match="built block_size 32; requested was 16"):
        ModelBuilder(precision="int4", int4_block_size=16).ensures({"checkpoint": llama}, built)
    with pytest.raises(ConversionError, match="built accuracy_level 4; requested was 2"):
        ModelBuilder(precision="int4", int4_accuracy_level=2).ensures({"checkpoint": llama}, built)


@pytest.mark.more
def test_a_graph_that_is_wrong_once_there_is_a_past_is_refused(llama, tmp_path, monkeypatch):
    """onnxruntime-genai 0.18 states shapes of a float16 graph that hold of its first step only."""
    monkeypatch.setattr(model_builder, "containers", lambda loaded: ())
    with pytest.raises(ConversionError, match="the decoder"):
        run("decoder", ModelBuilder(precision="fp16"), Decoder(llama, tmp_path / "made"))


@pytest.mark.more
def test_the_same_checkpoint_gives_the_same_files(llama, build, monkeypatch, tmp_path):
    monkeypatch.setattr(model_builder, "subprocess", subprocess)
    first, _ = build("int4")
    second, _ = run("decoder", ModelBuilder(precision="int4"), Decoder(llama, tmp_path / "made"))
    contents = [{path.name: path.read_bytes() for path in made.iterdir()} for made in (first, second)]
    assert contents[0] == contents[1]


def test_a_graph_that_is_not_the_checkpoint_is_refused(make_checkpoint, tmp_path):
    """onnxruntime-genai 0.18 mixes something up where there are as many words as hidden units."""
    square = make_llama(tmp_path, make_checkpoint, 64)
    with pytest.raises(ConversionError, match=r"the output logits is .* from the parent's"):
        run("decoder", ModelBuilder(precision="fp32"), Decoder(square, tmp_path / "made"))


@pytest.mark.more
def test_an_encoder_is_a_conversion_error_and_nothing_stays(bert, tmp_path):
    with pytest.raises(ConversionError, match="could not build the model") as refused:
        run("decoder", ModelBuilder(precision="fp32"), Decoder(bert, tmp_path / "made"))
    assert "without --recipe" in refused.value.hint and list(tmp_path.iterdir()) == []


def test_invalid_sources_and_parameters_are_refused(tmp_path):
    with pytest.raises(InputError, match="is not a checkpoint"):
        run("decoder", ModelBuilder(precision="fp32"), Decoder(tmp_path, tmp_path / "made"))
    for params in ({}, {"precision": "int3"}, {"precision": "bf16"}):
        with pytest.raises(InputError, match="at precision"):
            ModelBuilder(**params)


NEXT: dict[str, dict[str, Any]] = {
    "OnnxDynamicQuantization": {},
    "OnnxBlockWiseRtnQuantization": {"block_size": 32},
    "EmbeddingQuantization": {},
    "SmoothQuant": {},
    "OnnxFloatToFloat16": {},
    "OrtMixedPrecision": {},
    "OnnxIODataTypeConverter": {"source_dtype": 1, "target_dtype": 10},
    "DynamicToFixedShape": {"dim_param": ["batch_size"], "dim_value": [1]},
    "MobileSafeRewrite": {},
}


@pytest.mark.parametrize("name", NEXT)
def test_each_pass_takes_a_decoder(name, build):
    """It has ONNX Runtime's operators, one of them in ONNX's own domain, and a past."""
    decoder, _ = build("fp32")
    work: Any = pass_catalog.find(name)(**NEXT[name])
    _, step = run_and_compare("next", work, load(decoder / "model.onnx"))
    assert step.result["parity"]["outputs"]["logits"]["cosine"] > 0.99


def test_an_opset_that_cannot_be_given_to_a_decoder_is_refused(build):
    decoder = load(build("fp32")[0] / "model.onnx")
    with pytest.raises(InputError, match="SimplifiedLayerNormalization"):
        run("opset", OnnxOpVersionConversion(), decoder)


FLOAT32_LOGITS = {"name_pattern": "logits", "source_dtype": 10, "target_dtype": 1}


@pytest.mark.parametrize(
    ("precision", "kind", "params"),
    [("fp16", "OnnxIODataTypeConverter", FLOAT32_LOGITS), ("fp32", "OnnxDynamicQuantization", {})],
    ids=["logits in float32", "int8"],
)
def test_what_follows_in_a_recipe_is_measured_and_has_the_settings(precision, kind, params, llama, tmp_path):
    recipe = {
        "task": "text-generation",
        "steps": [
            {"name": "built", "pass": "ModelBuilder", "params": {"precision": precision}},
            {"name": "next", "pass": kind, "input": "built", "params": params},
        ],
        "outputs": [{"step": "next", "path": "web/decoder.onnx"}],
    }
    draft = execute(plan_export(from_value(recipe, "recipe.yaml"), str(llama), "acme/x", tmp_path), tmp_path)
    (artifact,) = draft.artifacts
    assert {check["metric"]: check["value"] for check in artifact.fields["checks"]}["argmax_agreement"] > 0.9
    assert "kv_cache" in artifact.fields
    types = {item["name"]: item["dtype"] for item in artifact.fields["metadata"]["outputs"]}
    assert types["logits"] == "float32"
    settings = json.loads((tmp_path / "web/genai_config.json").read_text("utf-8"))
    assert settings["model"]["decoder"]["filename"] == "decoder.onnx"
    assert (tmp_path / "web/tokenizer.json").is_file()
    onnxruntime_genai.Model(str(tmp_path / "web"))
