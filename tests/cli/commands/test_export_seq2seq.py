"""`reg export` of an encoder-decoder: three graphs with Optimum's names, which generate what the model generates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Reg
from support.tasks.seq2seq import KINDS, save

from onnxreg.converters import export
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks import checkpoint
from onnxreg.converters.tasks.seq2seq import FILES, Proof, Seq2Seq
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

SIDES = [f"{side}.{kind}" for side in ("decoder", "encoder") for kind in ("key", "value")]


def generate(directory: Path, ids: Any, mask: Any, start: int, steps: int) -> Any:
    """Generate greedily with the published files, as a client of Optimum's files does."""
    encoder, first, later = (load_session(directory / name) for name in FILES.values())
    (hidden,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    tokens, past = np.full((len(ids), 1), start), {}
    for _ in range(steps):
        feed = {"encoder_attention_mask": mask, "input_ids": tokens[:, -1:], **past}
        session = later if past else first
        feed |= {} if past else {"encoder_hidden_states": hidden}
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, feed), strict=True))
        tokens = np.concatenate([tokens, outputs["logits"][:, -1].argmax(-1)[:, None]], axis=1)
        past |= {name.replace("present", "past_key_values"): outputs[name] for name in names[1:]}
    return tokens


@pytest.mark.parametrize("kind", ["t5", *(pytest.param(kind, marks=pytest.mark.more) for kind in KINDS[1:])])
def test_the_published_files_generate_the_models_text(kind: str, reg: Reg, tmp_path: Path) -> None:
    import torch
    import transformers

    source = save(kind, tmp_path / kind, layers=1 if kind == "t5" else 2)
    quantize = ("--quantize",) if kind == "bart" else ()
    made = reg("export", kind, "--name", "acme/m", "--output", "out", *quantize)
    assert made.status == 0 and "task text2text-generation: config.json says" in made.err, made.err
    manifest = reg("show", "acme/m", "--json").json
    manifest = manifest.get("manifest", manifest)
    assert [member["name"] for member in manifest["model_family"]["members"]] == list(FILES)
    artifacts = {artifact["path"]: artifact for artifact in manifest["artifacts"]}
    layers = range(1 if kind == "t5" else 2)
    past = [f"past_key_values.{layer}.{side}" for layer in layers for side in SIDES]
    names = {path: [item["name"] for item in one["metadata"]["inputs"]] for path, one in artifacts.items()}
    assert names["encoder_model.onnx"] == ["input_ids", "attention_mask"]
    assert names["decoder_model.onnx"] == ["encoder_attention_mask", "input_ids", "encoder_hidden_states"]
    assert names["decoder_with_past_model.onnx"] == ["encoder_attention_mask", "input_ids", *past]
    outputs = [item["name"] for item in artifacts["decoder_with_past_model.onnx"]["metadata"]["outputs"]]
    assert outputs == [
        "logits",
        *(name.replace("past_key_values", "present") for name in past if "decoder" in name),
    ]
    for path, artifact in artifacts.items():
        (check,) = (check for check in artifact["checks"] if check["metric"] == "token_agreement")
        assert check["samples"] == 80 and (check["verdict"] == "info") == ("int8" in path)
        assert check["value"] == 1 if check["verdict"] == "pass" else 0 < check["value"] <= 1

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source).eval()
    ids = torch.tensor([[9, 8, 7, 6, 11, 12], [5, 9, 10, 0, 0, 0]])
    mask = torch.tensor([[1] * 6, [1] * 3 + [0] * 3])
    start = model.config.decoder_start_token_id
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=start, pad_token_id=start)
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=15, do_sample=False).numpy()
    got = generate(tmp_path / "out", ids.numpy(), mask.numpy(), start, 15)
    assert got.tolist() == expected.tolist()
    assert len({*got[:, 1:].ravel().tolist()}) > (1 if kind == "t5" else 0)
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert reg("run", "acme/m", "--member", "encoder", "--self-test").ended(0, "pass")

    if kind == "t5":
        wrong = expected[:, 1:].copy()
        wrong[1, 4] = (wrong[1, 4] + 1) % 20
        texts = [{"input_ids": ids.numpy(), "attention_mask": mask.numpy()}]
        pieces = tuple(
            DraftArtifact("onnx", "float32", path, fields={"checks": []}) for path in FILES.values()
        )
        family = {"members": [{"name": name, "artifacts": [path]} for name, path in FILES.items()]}
        draft = Draft("acme/m", tmp_path / "out", pieces, (), {"model_family": family})
        proven = Proof(start, texts, [expected[:, 1:]])(draft)
        assert [piece.fields["checks"][0]["value"] for piece in proven.artifacts] == [1, 1, 1]
        with pytest.raises(
            ConversionError, match=r"decoder_with_past_model\.onnx generates another text .*: token 5"
        ):
            Proof(start, texts, [wrong])(draft)


def bad(directory: Path, name: str) -> Path:

    save("t5", directory, layers=1)
    if name == "processor":
        (directory / "preprocessor_config.json").write_text("{}")
    for path in (directory / "config.json", directory / "generation_config.json"):
        settings = json.loads(path.read_bytes())
        if name == "start":
            settings.pop("decoder_start_token_id", None)
        path.write_text(json.dumps(settings))
    return directory


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("processor", "the checkpoint reads images or sound"),
        ("start", "has no decoder_start_token_id, with which an answer begins"),
    ],
)
def test_an_encoder_decoder_that_is_refused(name: str, message: str, tmp_path: Path) -> None:
    task = Seq2Seq.of(checkpoint.SEQ2SEQ)()
    source = str(bad(tmp_path / "t5", name))
    (tmp_path / "files").mkdir()
    with pytest.raises(InputError) as refused:
        task.load(task.find(source), "acme/m", tmp_path / "files")
    assert message in refused.value.message and refused.value.hint


def test_what_three_graphs_do_not_take(reg: Reg, tmp_path: Path) -> None:
    save("t5", tmp_path / "t5", layers=1)
    (tmp_path / "s.jsonl").write_text('{"text": "a"}\n')
    assert reg("export", "t5", "--name", "acme/m", "--eval-suite", "s.jsonl").ended(
        2, "no suite judges the task text2text-generation"
    )
    assert reg("export", "t5", "--name", "acme/m", "--task", "pooling").ended(2, "words so far")
    for output in (None, str(tmp_path / "a.onnx")):
        with pytest.raises(InputError, match="makes 3 graphs that work together"):
            export(str(tmp_path / "t5"), task="translation", output=output, opset=18)
    steps = [{"name": "a", "pass": "TransformersExport"}]
    for part, message in ((None, "the source has no part None"), ("x", "the source has no part x")):
        params = {} if part is None else {"params": {"part": part}}
        document = {"task": "translation", "steps": [{**steps[0], **params}]}
        (tmp_path / "r.json").write_text(json.dumps(document))
        assert reg("export", "t5", "--name", "acme/m", "--recipe", "r.json").ended(
            2, message, "encoder, decoder"
        )
