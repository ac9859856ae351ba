"""Suites of sounds: what is found before an export begins, and recognizers and classifiers against another decoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sounds import logits_of, write_sound
from support.tasks.table import ROWS, save

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.evaluate import plan_evaluation
from onnxreg.converters.evaluation.evaluators import Pages, Transcripts
from onnxreg.converters.evaluation.suite import load
from onnxreg.converters.tasks.task_catalog import task_recipe
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

SAID = ["one", "two", "three"]
ROW = {row.name: row for row in ROWS["Audio"]}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    drawn(tmp_path)
    write(tmp_path / "suite.jsonl", [{"audio": f"{text}.wav", "text": text} for text in SAID])
    return tmp_path / "suite.jsonl"


def drawn(directory: Path) -> list[Any]:
    """Write the sounds; return their samples."""
    return [write_sound(directory / f"{text}.wav", seconds=0.5 + n / 10) for n, text in enumerate(SAID)]


def write(path: Path, rows: list[Any]) -> None:
    path.write_text("\n" + "".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_digest_of_a_suite_is_that_of_its_sounds_too(suite, tmp_path):
    first = load(Transcripts, suite)
    assert load(Transcripts, suite) == first
    write_sound(tmp_path / "two.wav", seconds=0.9)
    changed = load(Transcripts, suite)
    assert changed.digest != first.digest
    assert changed.half("choose", 0).digest != first.half("choose", 0).digest
    assert changed.positions[1] == f"evaluation suite {suite}, line 3"
    write(suite, [{"image": "one.wav", "text": "one"}])
    assert load(Pages, suite).items[0].file == str(suite.with_name("one.wav"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"audio": "four.wav", "text": "four"}, "line 4: there is no file four.wav"),
        ({"audio": "one.wav", "text": "one"}, "line 4: the same item was used before, at line 2"),
        ({"audio": "copy.wav", "text": "copy"}, "line 4: the same file was used before, at line 2"),
        ({"audio": "one.wav", "label": "one"}, "line 4 is malformed"),
        ({"audio": 3, "text": "one"}, "line 4 is malformed at audio"),
    ],
)
def test_a_wrong_sound_of_a_suite_is_found_by_its_line(row, message, suite, tmp_path):
    (tmp_path / "copy.wav").write_bytes((tmp_path / "one.wav").read_bytes())
    write(suite, [{"audio": f"{text}.wav", "text": text} for text in SAID[:2]] + [row])
    request = EvaluationRequest.from_json({"suite": str(suite)})
    with pytest.raises(InputError, match=message):
        plan_evaluation(request, "automatic-speech-recognition", Path(), ())


def judged(source: Path, task: str, suite: Path, workspace: Path) -> dict[str, Any]:
    recipe = task_recipe(task, quantize=True, source=str(source))
    request = EvaluationRequest.from_json({"suite": str(suite)})
    workspace.mkdir()
    execute(plan_export(recipe.model_copy(update={"evaluation": request}), str(source), "acme/x"), workspace)
    certificate = json.loads((workspace / "certificates/model_int8.onnx.json").read_bytes())
    return {record["metric"]: record for record in certificate["metrics"]}


@pytest.mark.large
@pytest.mark.more
def test_sounds_are_judged_by_their_class(suite, tmp_path):
    source = save(ROW["HuBERT, classes"], tmp_path / "hubert")
    labels = list(json.loads((source / "config.json").read_text())["id2label"].values())
    rows = [{"audio": f"{text}.wav", "label": labels[n % 2]} for n, text in enumerate(SAID)]
    write(suite, rows)
    got = judged(source, "audio-classification", suite, tmp_path / "w")["accuracy"]
    for path, key in (("model.onnx", "parent"), ("model_int8.onnx", "value")):
        found = [int(logits.argmax()) for logits in logits_of(tmp_path / "w" / path, source, drawn(tmp_path))]
        assert got[key] == pytest.approx(np.mean([n % 2 == label for n, label in enumerate(found)]))
    write(suite, [*rows[:2], rows[2] | {"label": "HAPPY"}])
    with pytest.raises(InputError, match="line 4 has a label that the model does not have: 'HAPPY'"):
        judged(source, "audio-classification", suite, tmp_path / "again")
