"""Twenty exports of all kinds give the manifests that are frozen in `fixtures/exports`: facts, contracts and verdicts.

    FREEZE_EXPORTS=1 pytest tests/converters/test_frozen_exports.py  # writes them anew

Bytes may differ between machines, and so may the digests of files; the digests of graphs and weights may not. Figures
that are small differences are compared by their size, others to a twentieth.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.docs.nets import write_llama, write_mlp, write_stages
from support.families import small
from support.tasks import architectures

from onnxreg.cli.main import main

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXT = {architecture.name: architecture for architecture in architectures.TEXT}
Write = Callable[[pytest.FixtureRequest, Path], None]


def checkpoint(name: str, task: str, request: pytest.FixtureRequest, root: Path) -> None:
    """A tiny checkpoint of an architecture for a task."""
    architectures.save_text_model(TEXT[name], architectures.HEADS[task], root / "source")


def tagger(request: pytest.FixtureRequest, root: Path) -> None:
    """A token classifier, and texts on which it is right."""
    (root / "source").symlink_to(request.getfixturevalue("bert"))
    texts = {"choose": "the patient was seen by Dr w20", "confirm": "Dr w20 was seen by the patient"}
    for name, text in texts.items():
        words = re.finditer(r"\w+", text)
        spans = [
            {"start": word.start(), "end": word.end(), "label": "DATE", "text": word[0]} for word in words
        ]
        row = {"text": text, "gold_spans": spans, "metadata": {"source": "notes"}}
        rows = (json.dumps({"id": f"{name} {number}", **row}) for number in range(20))
        (root / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))


def net(request: pytest.FixtureRequest, root: Path) -> None:
    """A perceptron and the stages of a pipeline as graphs."""
    write_mlp(root / "mlp.onnx")
    write_stages(root)


def vision(request: pytest.FixtureRequest, root: Path) -> None:
    """A module in Python, its weights, and a section of Orchard."""
    import torch

    source = "import torch\n\n\ndef build():\n    body = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()\n    return torch.nn.Sequential(*body, torch.nn.Linear(256, 10))\n"
    (root / "net.py").write_text(source)
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102
    torch.manual_seed(0)
    torch.save(space["build"]().state_dict(), root / "best.pth")
    section = {"quantize": True, "quantization_type": "uint8", "opset_version": 17}
    document = {"name": "acme/frozen", "options": {"input": [1, 8, 8]}, "export": section}
    (root / "orchard.yaml").write_text(json.dumps(document))


def llama(request: pytest.FixtureRequest, root: Path) -> None:
    """A decoder, and a recipe that builds it."""
    write_llama(root / "source")
    for file in request.getfixturevalue("make_checkpoint")("distilbert").glob("tokenizer*"):
        shutil.copy(file, root / "source" / file.name)
    (root / "decoder.yaml").write_text(
        "task: text-generation\nsteps:\n  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"
    )


def openmed(request: pytest.FixtureRequest, root: Path) -> None:
    """A directory that OpenMed wrote."""
    shutil.copytree(FIXTURES / "openmed-v1" / "bert", root / "openmed")


def family(request: pytest.FixtureRequest, root: Path) -> None:
    """A backbone, heads and a detector of random weights."""
    small.write(root)
    (root / "family.yaml").write_text(json.dumps(small.DOCUMENT | {"name": "acme/frozen"}))


FOR_TASKS = {
    "BERT": "token-classification", "DistilBERT": "text-classification", "RoBERTa": "question-answering",
    "XLM-R": "feature-extraction", "ELECTRA": "pooling", "ALBERT": "token-classification", "MPNet": "pooling",
    "DeBERTa-v3": "text-classification", "ModernBERT": "token-classification",
}  # fmt: skip
ANDROID = "export source --profile android"
EXPORTS: dict[str, tuple[Write, str]] = {
    **{f"{name} for {task}": (partial(checkpoint, name, task), f"export source --task {task} --quantize") for name, task in FOR_TASKS.items()},
    "android": (partial(checkpoint, "BERT", "token-classification"), ANDROID),
    "android of DistilBERT": (partial(checkpoint, "DistilBERT", "token-classification"), f"{ANDROID} --license MIT"),
    "judged": (tagger, f"{ANDROID} --eval-suite choose.jsonl"),
    "certified": (tagger, f"{ANDROID} --certify --objective bytes --eval-suite choose.jsonl --confirm-suite confirm.jsonl"),
    "an ONNX file": (net, "add mlp.onnx --license MIT"),
    "an ONNX file quantized": (net, "export mlp.onnx --quantize"),
    "a pipeline": (net, "add --member detector=det.onnx --member recognizer=rec.onnx --member classifier=cls.onnx"),
    "a vision model": (vision, "export net.py:build --checkpoint best.pth --recipe orchard.yaml"),
    "a decoder": (llama, "export source --recipe decoder.yaml"),
    "OpenMed": (openmed, "import openmed"),
    "a family": (family, "export --recipe family.yaml"),
}  # fmt: skip
LOOSE = {"tools", "size", "seconds", "path_of_python", "library", "libraries"}
"""Keys whose values belong to the machine."""


def facts(value: Any, key: str = "") -> Any:
    """A manifest without the digests of files, and what belongs to the machine."""
    if isinstance(value, dict):
        return {
            name: f"<{type(part).__name__}>" if name in LOOSE else facts(part, name)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [facts(part, key) for part in value]
    if isinstance(value, str) and value.startswith("sha256:") and key not in {"graph", "weights"}:
        return "<digest>"
    return value


def differences(frozen: Any, now: Any, where: str = "") -> Iterator[str]:
    """The places at which two manifests differ."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for name in sorted({*frozen, *now}):
            if (name in frozen) != (name in now):
                yield f"{where}.{name} is {'gone' if name in frozen else 'new'}"
            else:
                yield from differences(frozen[name], now[name], f"{where}.{name}")
    elif isinstance(frozen, list) and isinstance(now, list) and len(frozen) == len(now):
        for number, pair in enumerate(zip(frozen, now, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif {type(frozen), type(now)} in ({float}, {float, int}):
        if not np.isclose(frozen, now, rtol=3 if abs(frozen) < 0.05 else 0.05, atol=1e-6):
            yield f"{where} is {now}, not {frozen}"
    elif frozen != now:
        yield f"{where} is {now!r}, not {frozen!r}"


SLOW = {"certified", "a decoder", "a family", "a pipeline", "android of DistilBERT", "OpenMed"}
SLOW |= {f"{name} for {FOR_TASKS[name]}" for name in FOR_TASKS.keys() - {"BERT", "ELECTRA"}}


@pytest.mark.usefixtures("reader_in_process")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.more] * (kind in SLOW)) for kind in EXPORTS]
)
def test_an_export_gives_its_frozen_manifest(kind, request, tmp_path, monkeypatch, capfdbinary):
    write, line = EXPORTS[kind]
    write(request, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    named = [] if "orchard" in line or "family" in line else ["--name", "acme/frozen"]
    assert main([*line.split(), *named]) == 0, capfdbinary.readouterr().err.decode()
    capfdbinary.readouterr()
    assert main(["show", "acme/frozen", "--json"]) == 0
    now = facts(json.loads(capfdbinary.readouterr().out))
    frozen = FIXTURES / "exports" / f"{kind.replace(' ', '-').lower()}.json"
    if os.environ.get("FREEZE_EXPORTS"):
        frozen.parent.mkdir(exist_ok=True)
        frozen.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", "utf-8")
    found = list(differences(json.loads(frozen.read_text("utf-8")), now))
    assert not found, "\n".join(found[:40])
