"""Checkpoints that are refused, each with what is wrong and what to do."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.tasks.checkpoints import load_checkpoint, task_of

from onnxreg.converters.source.source_files import Location, hub_id
from onnxreg.converters.tasks import generation
from onnxreg.converters.tasks.checkpoint import load_tokenizer, locate
from onnxreg.converters.tasks.generation import TextGeneration, genai_settings
from onnxreg.converters.tasks.sentences import PATTERNS
from onnxreg.converters.tasks.task import DECODER, TOKENS, Adapter, LocatedSource, Part
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConversionError,
    HostError,
    InputError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.manifest.draft import Draft, DraftArtifact


@pytest.fixture
def checkpoint(bert: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(bert, tmp_path / "checkpoint"))


def change(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def refused(directory: Path, family: type[RegError], **options: Any) -> str:
    with pytest.raises(family) as caught:
        load_checkpoint(str(directory), TOKENS, **options)
    assert caught.value.hint or family is InputError
    return caught.value.message


def resave(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def test_a_checkpoint_is_loaded_for_export(bert):
    import torch

    loaded = load_checkpoint(str(bert), TOKENS)
    assert loaded.labels == ("O", "B-NAME", "I-NAME", "B-DATE", "I-DATE")
    assert not loaded.model.training
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert loaded.config._attn_implementation == "eager"
    assert loaded.tokenizer.backend_tokenizer.padding is None
    assert loaded.tokenizer.backend_tokenizer.truncation is None
    lines = "".join(
        f"{hashlib.sha256((bert / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    )
    assert task_of(TOKENS).find(str(bert)).record("acme/x").to_json() == {
        "id": "acme/x",
        "digest": f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}",
    }


def test_half_precision_becomes_float32_and_old_buffers_are_no_trained_weights(checkpoint):
    import torch

    names = ("bert.pooler.dense.weight", "bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
    resave(checkpoint, lambda tensors: tensors.update({name: torch.ones(32, 32) for name in names}))
    resave(checkpoint, lambda tensors: tensors.update({name: t.half() for name, t in tensors.items()}))
    change(checkpoint / "config.json", dtype="float16")
    loaded = load_checkpoint(str(checkpoint), TOKENS)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}


def test_shards_of_an_older_version_are_read(checkpoint):
    import torch
    from safetensors.torch import load_file

    new = load_file(path := checkpoint / "model.safetensors")
    path.unlink()
    old = {name.replace("Norm.weight", "Norm.gamma"): tensor.bfloat16() for name, tensor in new.items()}
    shards = ("1.bin", sorted(old)[::2]), ("2.bin", sorted(old)[1::2])
    for file, names in shards:
        torch.save({name: old[name] for name in names}, checkpoint / file)
    files = {name: file for file, names in shards for name in names}
    (checkpoint / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": files})
    )
    loaded = load_checkpoint(str(checkpoint), TOKENS).model.state_dict()
    assert all(torch.equal(loaded[name], tensor.bfloat16().float()) for name, tensor in new.items())


def test_a_model_file_and_a_package_that_the_tokenizer_needs_are_named(checkpoint, monkeypatch):
    (checkpoint / "model.onnx").write_bytes(b"")
    with pytest.raises(InputError, match="is a file, not the directory of a checkpoint") as caught:
        load_checkpoint(str(checkpoint / "model.onnx"), TOKENS)
    assert f"reg export {checkpoint / 'model.onnx'} --quantize" in caught.value.hint

    def load(*_: Any, **__: Any) -> Any:
        raise ImportError("LlamaTokenizer requires the SentencePiece library but it was not found")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", load)
    with pytest.raises(HostError, match="needs a package: LlamaTokenizer requires the SentencePiece library"):
        load_tokenizer(checkpoint, False)


def test_an_encoder_without_a_head_is_refused_with_the_keys(make_checkpoint, checkpoint):
    encoder = make_checkpoint("bert", task="")
    assert "not a token classifier: config.json says BertModel" in refused(encoder, InputError)
    resave(checkpoint, lambda tensors: [tensors.pop(name) for name in list(tensors) if "classifier" in name])
    message = "the checkpoint has no values for classifier.bias, classifier.weight"
    assert refused(checkpoint, InputError) == message


@pytest.mark.parametrize("more", [{}, {"attn_implementation": "flash_attention_2"}])
def test_a_model_that_does_not_fit_into_memory_is_refused_before_it_is_made(checkpoint, more):
    change(checkpoint / "config.json", intermediate_size=10**12, **more)
    assert "GB of memory, and " in refused(checkpoint, HostError)


def put(name: str, content: str | bytes) -> Callable[[Path], Any]:
    data = content.encode() if isinstance(content, str) else content
    return lambda root: (root / name).write_bytes(data)


def gone(name: str) -> Callable[[Path], Any]:
    return lambda root: (root / name).unlink()


def keys(name: str = "config.json", **values: Any) -> Callable[[Path], Any]:
    return lambda root: change(root / name, **values)


def tensor(name: str) -> Callable[[Path], Any]:
    import torch

    return lambda root: resave(root, lambda tensors: tensors.update({name: torch.ones(2, 2)}))


def shard(name: str) -> Callable[[Path], Any]:
    def write(root: Path) -> None:
        (root / "model.safetensors").unlink()
        (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))

    return write


def prefixed(root: Path) -> None:
    resave(root, lambda tensors: [tensors.update({f"net.{k}": tensors.pop(k)}) for k in list(tensors)])


def also(root: Path, name: str) -> None:
    shutil.copyfile(root / "model.safetensors", root / name)
    change(root / "config.json", transformers_weights=name)


def more_tokens(root: Path) -> None:
    value = json.loads((root / "tokenizer.json").read_text())
    value["model"]["vocab"] |= {"last": 63, "beyond": 64}
    (root / "tokenizer.json").write_text(json.dumps(value))


SHARD = "shard-00001-model-00001-of-00001.safetensors"
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (gone("config.json"), "config.json"),
    "no weights": (gone("model.safetensors"), "no weights"),
    "no tokenizer.json": (gone("tokenizer.json"), "tokenizer"),
    "damaged weights": (put("model.safetensors", b"\0" * 64), "the checkpoint could not be loaded"),
    "half a config": (put("config.json", "[1,"), "not valid JSON"),
    "a nested config": (put("config.json", "[" * 100_000 + "]" * 100_000), "config.json is not valid JSON"),
    "a missing shard": (shard("model-00001-of-00002.safetensors"), "shard that is missing"),
    "a shard elsewhere": (shard("../model.safetensors"), "shard that is missing"),
    "weights of another name": (lambda root: also(root, "other.safetensors"), "would load other.safetensors"),
    "shards of several machines": (lambda root: shutil.copyfile(root / "model.safetensors", root / SHARD), f"would load {SHARD}"),
    "another size": (lambda root: resave(root, lambda t: t.update({"classifier.bias": t["classifier.bias"][:3].clone()})), "shapes differ from its config for classifier.bias"),
    "distances": (tensor("bert.encoder.layer.0.attention.self.distance_embedding.weight"), "distance_embedding"),
    "a third layer": (tensor("bert.encoder.layer.2.output.dense.weight"), "layer.2.output.dense.weight"),
    "a part of its own": (tensor("crf.transitions"), "crf.transitions"),
    "a prefix": (prefixed, "no values for"),
    "a number of architectures": (keys(architectures=5), "architectures in config.json"),
    "one text of architectures": (keys(architectures="BertForTokenClassification"), "architectures in config.json"),
    "numbers for names": (keys(architectures=[5]), "architectures in config.json"),
    "tokens without embeddings": (more_tokens, "the tokenizer has tokens up to 64, but the model has embeddings for 64"),
    "another spelling": (put("config.json", '{"text_config": {"auto\\u005fmap": {"AutoModel": "evil.Evil"}}}'), "wants its own code to run"),
    "a gap in the labels": (keys(id2label={"0": "O", "1": "A", "2": "B", "3": "C", "5": "D"}), "does not number its labels"),
    "a label twice": (keys(id2label={"0": "O", "1": "A", "2": "A", "3": "C", "4": "D"}), "one label to two ids"),
    "layers without end": (keys(num_hidden_layers=10**9), "has num_hidden_layers 1000000000, the most is 1,000"),
    "layers without end in a part": (keys(text_config={"depths": [2, 10**9]}), "has depths"),
    "labels without end": (keys(num_labels=10**9), "has num_labels 1000000000, the most is 1,000,000"),
    "fewer labels": (keys(id2label={"0": "O", "1": "A"}, label2id={"O": 0, "A": 1}), "shapes differ"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_checkpoint_is_refused(checkpoint, what):
    spoil, message = BROKEN[what]
    (checkpoint / "evil.py").write_text("raise SystemExit('ran')")
    spoil(checkpoint)
    found = refused(checkpoint, InputError)
    assert message in found and str(checkpoint) not in found


OTHER_HEADS = {
    "BertForSequenceClassification": "--task text-classification",
    "BertForQuestionAnswering": "--task question-answering",
    "ViTForImageClassification": "--task image-classification",
    "LlamaForCausalLM": "--task text-generation",
}


@pytest.mark.parametrize("architecture", OTHER_HEADS)
def test_a_checkpoint_of_another_head_gets_the_way_to_export_it(checkpoint, architecture):
    change(checkpoint / "config.json", architectures=[architecture])
    with pytest.raises(InputError, match=architecture) as caught:
        load_checkpoint(str(checkpoint), TOKENS)
    assert OTHER_HEADS[architecture] in str(caught.value.hint)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_own_code_of_another_repository_is_not_run_at_all(checkpoint, name):
    for value in ({"AutoModel": "other/repo--evil.Evil"}, {"AutoTokenizer": [None, "other/repo--evil.Evil"]}):
        change(checkpoint / name, auto_map=value)
        message = refused(checkpoint, InputError, trust_remote_code=True)
        assert message.endswith(f"{name} names 'other/repo--evil.Evil'")
        assert f"wants its own code to run ({name}" in refused(checkpoint, InputError)


def test_own_code_takes_part_in_the_digest_once_trusted(checkpoint):
    plain = task_of(TOKENS, trust_remote_code=True).find(str(checkpoint)).digest
    (checkpoint / "extra.py").write_text("x = 1\n")
    assert task_of(TOKENS).find(str(checkpoint)).digest == plain
    assert task_of(TOKENS, trust_remote_code=True).find(str(checkpoint)).digest != plain


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_may_hold_tensors_only_and_safetensors_win(checkpoint, tmp_path):
    import torch
    from safetensors.torch import load_file

    path, evil = checkpoint / "pytorch_model.bin", Evil(tmp_path / "ran")
    torch.save(evil, path)
    assert load_checkpoint(str(checkpoint), TOKENS).labels[0] == "O"
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    torch.save(tensors, path)
    assert load_checkpoint(str(checkpoint), TOKENS).labels[0] == "O"
    torch.save({**tensors, "classifier.bias": evil}, path)
    assert "more than tensors" in refused(checkpoint, InputError)
    assert not (tmp_path / "ran").exists()


HUB_IDS = {"acme/Model": "acme/Model", "acme/model@v1.0": "acme/model", "model": "model", "tests": None}


@pytest.mark.parametrize("source", [*HUB_IDS, "/abs/model", "./model", "a/b/c", "file.txt", "acme/model@"])
def test_hub_ids(source, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "file.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    if source in HUB_IDS:
        assert hub_id(source) == HUB_IDS[source]
        return
    with pytest.raises(NotFoundError, match="no such checkpoint directory"):
        hub_id(source)


REPOSITORY = {
    "config.json", "README.md", "net.py", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "onnx/model.safetensors", "1_Pooling/config.json", "onnx/config.json", "my_Pooling/config.json",
}  # fmt: skip


@pytest.mark.parametrize(
    ("absent", "options", "expected"),
    [
        ((), {}, {"config.json", "README.md", "model.safetensors", "model.safetensors.index.json"}),
        (("model.safetensors", "model.safetensors.index.json"), {"code": True}, {"config.json", "README.md", "net.py", "pytorch_model.bin"}),
        (("model.safetensors", "README.md"), {"more": PATTERNS}, {"config.json", "model.safetensors.index.json", "1_Pooling/config.json", "my_Pooling/config.json"}),
    ],
)  # fmt: skip
def test_a_hub_id_is_pinned_to_the_commit(checkpoint, monkeypatch, absent, options, expected):
    """Weights are fetched in one form, code only if it may run, and further files only if asked for."""
    snapshot, calls = checkpoint.rename(checkpoint.with_name("0123abcd")), []

    def fetch(name: str, revision: str | None, choose: Any) -> Location:
        calls.append((name, revision, set(choose(REPOSITORY - {*absent}))))
        return Location(snapshot, name, snapshot.name)

    monkeypatch.setattr("onnxreg.converters.tasks.checkpoint.fetch", fetch)
    source = task_of(TOKENS).find("acme/Tagger@main").record("ignored")
    assert (source.id, source.revision) == ("acme/Tagger", "0123abcd")
    locate("acme/Tagger", **options)
    assert [call[:2] for call in calls] == [("acme/Tagger", "main"), ("acme/Tagger", None)]
    assert calls[1][2] == expected


def test_the_hub_says_no(monkeypatch):
    import httpx2
    from huggingface_hub import errors

    refused = httpx2.Response(404, request=httpx2.Request("GET", "https://hub.example"))

    cases: list[tuple[Exception, type[Exception], str]] = [
        (errors.RepositoryNotFoundError("none", response=refused), NotFoundError, "has no repository"),
        (errors.RevisionNotFoundError("none", response=refused), NotFoundError, "no revision v9"),
        (OSError("boom"), RemoteError, "could not be fetched"),
        (httpx2.ReadTimeout("slow"), RemoteError, "cannot be reached"),
        (errors.HFValidationError("no"), InputError, "cannot be a repository"),
    ]
    for raised, family, message in cases:

        def refuse(*_: Any, raised: Exception = raised, **__: Any) -> None:
            raise raised

        monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
        with pytest.raises(family, match=message):
            locate("acme/tagger@v9")


def test_a_checkpoint_without_a_tokenizer(checkpoint):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint / name).unlink()
    assert load_checkpoint(str(checkpoint), TOKENS).tokenizer is None


def test_the_builder_of_decoders_takes_no_adapter(tmp_path: Path) -> None:
    source = LocatedSource(tmp_path, Digest.of(b""), adapter=Adapter(tmp_path, {}))
    with pytest.raises(InputError, match="the pass ModelBuilder takes no adapter"):
        TextGeneration.of(DECODER)().load(source, "acme/x", tmp_path)


@pytest.mark.parametrize(
    ("end", "value_size", "has_settings"), [(1, 8, True), (1, 4, False), (None, 8, False)]
)
def test_settings_are_written_only_for_what_genai_runs(
    end: int | None, value_size: int, has_settings: bool
) -> None:
    """In DeepSeek-V3, keys and values have different sizes; genai_config.json has one for both."""
    sizes = {"key": 8, "value": value_size}
    feed = {f"past_key_values.0.{kind}": np.zeros((1, 2, 3, size)) for kind, size in sizes.items()}
    model = SimpleNamespace(generation_config=None, config=SimpleNamespace(eos_token_id=end))
    settings = genai_settings(model, Part(None, [feed], [{"logits": np.zeros((1, 3, 9))}]), 64)
    assert (settings is not None) == has_settings


def test_tokens_are_not_equal_because_a_mask_is_large(monkeypatch, tmp_path):
    def decode(_: Any) -> Any:
        return np.array([[5.0, -7.0, np.finfo(np.float32).min]])

    graphs = SimpleNamespace(
        encode=lambda _: {}, decoding=lambda _: decode, decoder=lambda _: generation.DECODER
    )
    monkeypatch.setattr(generation, "Generator", lambda *_: graphs)
    draft = Draft("a/b", tmp_path, (DraftArtifact("onnx", "float32", "model.onnx", fields={"checks": []}),))
    right, wrong = (generation.Answer({}, np.zeros((1, 1)), np.array([[token]])) for token in (0, 1))
    (artifact,) = generation.prove([right], draft).artifacts
    assert [check["verdict"] for check in artifact.fields["checks"]] == ["pass"]
    with pytest.raises(ConversionError):
        generation.prove([wrong], draft)
