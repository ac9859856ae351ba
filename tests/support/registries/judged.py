"""Versions whose artifacts were judged on a suite: a retrained tagger with a recall for each label."""

import json
import random
from pathlib import Path
from typing import Any

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

SPANS = 150
"""Gold spans of each label."""
SMALL = (("onnx-android", "float16", "model_fp16.onnx"), ("onnx-int8", "int8", "model_int8.onnx"))


def judged_draft(
    root: Path,
    seed: int,
    labels: int = 20,
    suite: str | None = "suite",
    name: str = "acme/tagger",
    worse: dict[str, float] | None = None,
    **fields: Any,
) -> Draft:
    """A version of a tagger: float32, float16 and int8, the small ones judged on a suite (None: not judged).

    `seed` decides weights and recalls; `worse` are recalls of int8 labels.
    """
    root.mkdir(parents=True)
    names = [f"LABEL{number:02}" for number in range(labels)]
    (root / "model.onnx").write_bytes(f"float32 {seed} ".encode() * 9000)
    (root / "config.json").write_text(json.dumps({"seed": seed}))
    (root / "recall_delta.json").write_text(json.dumps({"seed": seed, "report": "x" * (500 + seed)}))
    (root / "model.golden.json").write_text(json.dumps({"seed": seed, "golden": [seed] * 20}))
    small = [_small(root, number, seed, names, suite, worse or {}) for number in range(len(SMALL))]
    return Draft(
        name,
        root,
        (DraftArtifact("onnx-android", "float32", "model.onnx", fields=_graph(seed)), *small),
        (DraftFile("config", "config.json"), DraftFile("report", "recall_delta.json")),
        {
            "task": "token-classification",
            "labels": ["O", *names],
            "license": "Apache-2.0",
            "source": {"id": name, "digest": str(Digest.of(f"source {seed}".encode()))},
            "recipe": {
                "profile": "android",
                "profile_version": 1,
                "steps": [
                    {"name": "fp32", "pass": "x", "version": 1, "params": {}, "result": {"nodes": seed}}
                ],
                "tools": {"onnx": "1.23.2"},
            },
        }
        | fields,
    )


def _graph(seed: int) -> dict[str, Any]:
    return {
        "metadata": {"opset": 18},
        "opset_imports": {"ai.onnx": 18},
        "operators": [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}],
        "semantic": {
            "graph": str(Digest.of(b"graph")),
            "weights": str(Digest.of(f"weights {seed}".encode())),
        },
    }


def _small(
    root: Path, number: int, seed: int, labels: list[str], suite: str | None, worse: dict[str, float]
) -> DraftArtifact:
    kind, precision, path = SMALL[number]
    (root / path).write_bytes(f"{precision} {seed} ".encode() * (4000 - 1500 * number))
    chance = random.Random(f"{seed} {precision}")
    recalls = {label: round(0.99 - chance.random() * 0.02, 6) for label in labels}
    recalls |= worse if precision == "int8" else {}
    digest = None if suite is None else Digest.of(suite.encode())
    dataset = {} if digest is None else {"dataset": str(digest)}
    loss = round(chance.random() * 0.004, 6)
    checks: list[dict[str, Any]] = [
        {"name": "parity/argmax_agreement", "metric": "argmax_agreement", "value": 0.999, "verdict": "pass"},
        {"name": "parity", "metric": "max_abs_diff", "value": chance.random() / 100, "verdict": "info"},
    ]
    if digest is not None:
        checks += [
            {"name": f"character_recall/{label}", "metric": "character_recall", "value": recall}
            | {"verdict": "pass", "samples": SPANS, **dataset}
            for label, recall in recalls.items()
        ]
        checks.append(
            {"name": "quant_recall_delta", "metric": "character_recall", "value": loss, "limit": 0.005}
            | {"interval": [loss / 2, loss * 2], "verdict": "pass", "samples": SPANS * len(labels), **dataset}
        )
    verdict = (
        Verdict("certified", "G4/point", (), digest, "recall_delta.json") if digest else Verdict("unknown")
    )
    sidecars = (DraftFile("golden", "model.golden.json"),) if precision == "int8" else ()
    return DraftArtifact(
        kind, precision, path, sidecars, "model.onnx", verdict, _graph(seed) | {"checks": checks}
    )
