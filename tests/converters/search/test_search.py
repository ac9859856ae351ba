"""The search for the smallest artifact that passes, on taggers whose right answers are known."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxreg.converters.android.android_options import AndroidOptions, recipe_of
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.rebuild import Materials, rebuild
from onnxreg.converters.search import check_search, execute
from onnxreg.converters.search.candidates import WeightBytes, library
from onnxreg.converters.search.trial import without_paths
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

Make = Callable[..., Path]
STEPS = [{"name": "fp32", "pass": "OnnxConversion"}]
OUTPUTS = [{"step": "fp32", "path": "model.onnx"}]
RUINOUS: Mapping[str, Any] = {
    "name": "ruined",
    "steps": [
        {"name": "x", "pass": "OnnxBlockWiseRtnQuantization", "params": {"bits": 4, "block_size": 256}}
    ],
}


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", "")


@pytest.fixture
def write_suite(tmp_path: Path) -> Callable[..., Path]:
    """Texts without gold, which mean_cosine needs: none is in two suites."""

    def write(name: str, start: int = 0, count: int = 220) -> Path:
        path = tmp_path / name
        rows = [
            {"text": f"w{10 + n % 50} w{10 + n // 50} w{20 + n % 7}"} for n in range(start, start + count)
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return path

    return write


@pytest.fixture
def search(encoder: Path, tmp_path: Path) -> Callable[..., Draft]:
    def run(suite: Path, cache: StepCache | None = None, limit: float = 0.01, **request: Any) -> Draft:
        value = {
            "task": "pooling",
            "steps": STEPS,
            "outputs": OUTPUTS,
            "evaluation": {"suite": str(suite), "metrics": [{"metric": "mean_cosine", "limit": limit}]},
            "search": {"input": "fp32", **request},
        }
        workspace = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        workspace.mkdir()
        plan = plan_export(RecipeFile.from_json(value), str(encoder), "acme/x")
        check_search(plan)
        return execute(plan, workspace, cache)

    return run


def manifest(draft: Draft) -> Manifest:
    data = {path: (draft.root / path).read_bytes() for path in draft.paths()}
    return draft.manifest({path: Descriptor(Digest.of(raw), len(raw)) for path, raw in data.items()})


def record(draft: Draft) -> dict[str, Any]:
    value: dict[str, Any] = dict(draft.fields["recipe"]["parameters"]["search"])
    return value


def test_the_smallest_that_passes_wins_and_is_confirmed_on_the_other_suite(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["int8", "fp16", "int8-int8-embeddings"]
    draft = search(choose, confirm=str(confirm), candidates=names)
    found = record(draft)
    by_name = {trial["candidate"]: trial for trial in found["candidates"]}
    assert set(by_name) == set(names)
    passed = {name: trial["bytes"] for name, trial in by_name.items() if trial["state"] == "certified"}
    assert found["winner"] == min(passed, key=lambda name: passed[name])
    assert found["tried"] == sum(trial["state"] != "untried" for trial in found["candidates"])
    assert (found["choose"], found["confirm"]) == tuple(
        str(Digest.of(path.read_bytes())) for path in (choose, confirm)
    )
    (winner,) = [artifact for artifact in manifest(draft).artifacts if artifact.path == found["output"]]
    assert winner.size == passed[found["winner"]]
    assert winner.certification.state == "certified" and winner.certification.evidence is not None
    assert winner.certification.evidence.suite == Digest.of(confirm.read_bytes())
    assert not (draft.root / ".search").exists()


def test_without_a_second_suite_the_groups_are_split_and_the_halves_are_recorded(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    suite = write_suite("suite.jsonl", count=440)
    draft = search(suite, candidates=["fp16"], seed=3)
    found, digest = record(draft), str(Digest.of(suite.read_bytes()))
    assert len({found["choose"], found["confirm"], digest}) == 3
    assert (
        draft.fields["recipe"]["parameters"]["recipe"]["evaluation"].items()
        >= {
            "suite": digest,
            "half": "confirm",
            "seed": 3,
        }.items()
    )
    certificate = json.loads((draft.root / "certificates/model_fp16.onnx.json").read_bytes())
    assert certificate["suite"] == found["confirm"]
    assert certificate["metrics"][0]["samples"] == 220


def test_a_half_that_is_too_small_certifies_nothing(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    with pytest.raises(ConversionError, match=r"none of 1 candidates passes .*independent items"):
        search(write_suite("suite.jsonl", count=300), candidates=["fp16"])


def test_none_passes_is_an_error_that_lists_the_nearest(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["int8", "weights8-32", "weights4"]
    with pytest.raises(ConversionError) as caught:
        search(choose, confirm=str(confirm), candidates=names, limit=1e-12)
    message = caught.value.message
    assert "none of 3 candidates passes" in message
    assert message.index("weights8-32") < message.index("weights4 (")


def test_rebuild_repeats_the_path_of_the_winner(
    search: Callable[..., Draft], write_suite: Callable[..., Path], encoder: Path, tmp_path: Path
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    published = manifest(search(choose, confirm=str(confirm), candidates=["int8", "fp16"]))
    workspace = tmp_path / "again"
    workspace.mkdir()
    again = manifest(rebuild(published, "acme/x:1", Materials(str(encoder), confirm), workspace))
    assert again == published


def test_a_second_search_takes_its_figures_from_the_cache(
    search: Callable[..., Draft],
    write_suite: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    cache = StepCache(tmp_path / "cache")
    first = search(choose, cache, confirm=str(confirm), candidates=["int8", "fp16"])

    def fail(*_: Any) -> None:
        raise AssertionError("predicted again")

    monkeypatch.setattr("onnxreg.converters.evaluation.evaluate.predict", fail)
    second = search(choose, cache, confirm=str(confirm), candidates=["int8", "fp16"])
    assert manifest(first) == manifest(second)


@pytest.mark.parametrize(
    ("request_fields", "family", "message"),
    [
        ({"candidates": ["int9"]}, InputError, "no candidate is called int9"),
        ({"candidates": ["int8", "int8"]}, InputError, "two candidates are called int8"),
        ({"input": "fp64"}, InputError, "the step fp64, which is not there"),
        ({"devices": ["no-such-phone"]}, InputError, "no device preset 'no-such-phone'"),
        ({"confirm": "none.jsonl"}, NotFoundError, "no evaluation suite"),
    ],
    ids=["candidate", "twice", "step", "device", "confirm"],
)
def test_what_cannot_be_searched_is_refused_before_any_work(
    search: Callable[..., Draft],
    write_suite: Callable[..., Path],
    request_fields: dict[str, Any],
    family: type[Exception],
    message: str,
) -> None:
    with pytest.raises(family, match=message):
        search(write_suite("choose.jsonl", count=440), **request_fields)


def test_items_in_both_suites_are_refused(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose = write_suite("choose.jsonl")
    for confirm in (choose, write_suite("overlap.jsonl", 219)):
        with pytest.raises(InputError, match="items are in both suites"):
            search(choose, confirm=str(confirm))


def test_a_candidate_of_ones_own_that_fails_is_recorded(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    broken = {
        "name": "broken",
        "steps": [{"name": "x", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 7}}],
    }
    draft = search(choose, confirm=str(confirm), candidates=[broken, RUINOUS, "fp16"], limit=1e-4)
    states = {trial["candidate"]: trial["state"] for trial in record(draft)["candidates"]}
    assert states["broken"] == "failed" and states["fp16"] == "certified"


def test_devices_leave_out_what_they_do_not_load(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    preset = "ort-android-1.23"
    draft = search(choose, confirm=str(confirm), candidates=["fp16"], devices=[preset])
    assert record(draft)["devices"] == [preset]


def test_8_bit_weights_are_left_out_for_a_release_that_lacks_them(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    draft = search(
        choose, confirm=str(confirm), candidates=["weights8-32", "fp16"], devices=["ort-android-1.22"]
    )
    trials = {trial["candidate"]: trial for trial in record(draft)["candidates"]}
    assert trials["weights8-32"]["state"] == "unsupported"
    assert "needs MatMulNBits bits=8" in str(trials["weights8-32"]["reasons"])
    assert trials["fp16"]["state"] == "certified"


def test_latency_decides_if_it_is_the_objective(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["int8", "fp16", "weights8-32"]
    found = record(search(choose, confirm=str(confirm), candidates=names, objective="latency"))
    times = {trial["candidate"]: trial["median_ms"] for trial in found["candidates"] if "median_ms" in trial}
    assert set(times) == set(names)
    assert found["winner"] == min(times, key=lambda name: times[name])


def test_estimates_order_candidates_as_their_files_do() -> None:
    weights = WeightBytes(products=42_000_000, tables=47_000_000, remainder=400_000)
    sizes = {candidate.name: candidate.estimate(weights) for candidate in library(True, None)}
    assert sizes["weights4-int8-embeddings"] < sizes["int8-int8-embeddings"]
    assert sizes["int8-int8-embeddings"] <= sizes["weights8-128-int8-embeddings"]
    assert sizes["weights8-128-int8-embeddings"] < sizes["weights8-32-int8-embeddings"]
    assert sizes["weights8-32-int8-embeddings"] < sizes["weights8-128-fp16-embeddings"] < sizes["fp16"]
    assert sizes["fp16"] < sizes["int8"] < sizes["weights8-128"]


def test_static_quantization_is_tried_if_there_are_rows_to_calibrate_on(
    search: Callable[..., Draft], write_suite: Callable[..., Path], tmp_path: Path
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    rows = {
        name: np.ones((4, 6), dtype=np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    rows["input_ids"] = np.arange(24).reshape(4, 6) % 40
    rows["token_type_ids"] *= 0
    np.savez(tmp_path / "rows.npz", **rows)
    names = ["static-int8", "fp16"]
    fields = {"confirm": str(confirm), "candidates": names, "calibration": str(tmp_path / "rows.npz")}
    found = record(search(choose, objective="latency", **fields))
    states = {trial["candidate"]: trial["state"] for trial in found["candidates"]}
    assert states["static-int8"] in ("certified", "refused"), found
    with pytest.raises(InputError, match="no candidate is called static-int8"):
        search(choose, confirm=str(confirm), candidates=names)


def test_a_suite_of_one_item_has_an_empty_half(
    search: Callable[..., Draft], write_suite: Callable[..., Path]
) -> None:
    with pytest.raises(ConversionError, match="1 independent items"):
        search(write_suite("one.jsonl", count=1), candidates=["fp16"])


@pytest.mark.parametrize(
    ("message", "published"),
    [
        (
            "x.onnx does not load: /tmp/a/w/.search/trials/b/x.onnx is broken",
            "x.onnx does not load: x.onnx is broken",
        ),
        ("no '/home/ada/secret/model.onnx'", "no 'model.onnx'"),
        ("the ratio 1/2 is 0.5, a/b stays", "the ratio 1/2 is 0.5, a/b stays"),
    ],
)
def test_no_path_of_this_machine_is_published(message: str, published: str) -> None:
    assert without_paths(message) == published


@pytest.mark.parametrize("options", [{"int8": False}, {"int8_embeddings": True}])
def test_the_profile_refuses_int8_options_beside_a_search(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a search makes the INT8 file by itself"):
        recipe_of(AndroidOptions(**options), search={})
