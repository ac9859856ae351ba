"""The memory of a decoder's build is estimated from its checkpoint, and compared with what is free."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from onnxreg.converters import request as module
from onnxreg.converters.passes import model_builder
from onnxreg.converters.passes.model_builder import LIBRARY_BYTES, PARAMETER_BYTES, peak_memory
from onnxreg.schema.core.errors import ConversionError

RECIPE = {
    "task": "text-generation",
    "steps": [{"name": "int4", "pass": "ModelBuilder", "params": {"precision": "int4"}}],
    "outputs": [{"step": "int4"}],
}
PARAMETERS = 1000 * 64 + 64 * 3


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """A checkpoint of two tensors, and a recipe beside it."""
    directory = tmp_path / "decoder"
    directory.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {"words": np.ones((1000, 64), np.float16), "head": np.ones((64, 3), np.float32)}
    save_file(tensors, directory / "model.safetensors")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    return directory


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkpoints whose build began; none of them ends."""
    checkpoints: list[Path] = []

    def build(self: Any, checkpoint: Path, *paths: Path) -> None:
        checkpoints.append(checkpoint)
        raise ConversionError("the build ends here")

    monkeypatch.setattr(model_builder.ModelBuilder, "_build", build)
    return checkpoints


def test_the_estimate_counts_parameters_of_any_type(decoder: Path) -> None:
    assert peak_memory(decoder) == LIBRARY_BYTES + PARAMETER_BYTES * PARAMETERS


def test_shards_are_counted_together(decoder: Path) -> None:
    (decoder / "model.safetensors").rename(decoder / "a.safetensors")
    save_file({"more": np.ones(8, np.float16)}, decoder / "b.safetensors")
    table = {"words": "a.safetensors", "head": "a.safetensors", "more": "b.safetensors"}
    (decoder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    assert peak_memory(decoder) == LIBRARY_BYTES + PARAMETER_BYTES * (PARAMETERS + 8)


def test_pickles_have_no_estimate(decoder: Path) -> None:
    (decoder / "model.safetensors").rename(decoder / "pytorch_model.bin")
    assert peak_memory(decoder) is None


def test_a_damaged_checkpoint_has_no_estimate(decoder: Path) -> None:
    (decoder / "model.safetensors").write_bytes(bytes(20))
    assert peak_memory(decoder) is None


def test_a_source_that_is_no_directory_is_left_to_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 0)
    node = SimpleNamespace(kind=model_builder.ModelBuilder)
    plan: Any = SimpleNamespace(source=SimpleNamespace(location=object()), nodes={"int4": node})
    module.check_memory(plan)


@pytest.mark.parametrize("cache", [(), ("--no-cache",)])
def test_a_decoder_that_does_not_fit_is_refused_before_it_is_built(
    reg: Any, decoder: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch, cache: tuple[str, ...]
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 400_000_000)
    export = ("export", decoder, "--recipe", "recipe.yaml", "--name", "acme/decoder", *cache)
    refused = reg(*export)
    assert (refused.status, builds) == (9, [])
    assert "takes about 0.5 GB of memory, and 0.4 GB are free" in refused.err
    assert "a machine with more memory" in refused.err


@pytest.mark.parametrize("free", [None, 10**9])
def test_one_that_fits_is_built(
    reg: Any, decoder: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: free)
    assert reg("export", decoder, "--recipe", "recipe.yaml", "--name", "acme/decoder").status == 7
    assert builds == [decoder]
