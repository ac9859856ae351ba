"""The search for the smallest artifact that passes, on taggers whose right answers are known."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from support.docs.nets import write_mlp
from support.graphs import graph, read, store
from support.registries.drafts import manifest_of

from onnxreg.converters.engine import run_plan
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan, plan_export
from onnxreg.converters.evaluation.evaluate import SourceEvaluation
from onnxreg.converters.evaluation.latency import Latency, Ratio, typical_inputs
from onnxreg.converters.evaluation.metric import EvaluationError
from onnxreg.converters.evaluation.metrics import MeanCosine
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes import models
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.profiles.profile_catalog import find
from onnxreg.converters.rebuild import Materials, rebuild
from onnxreg.converters.request import run
from onnxreg.converters.search.candidates import WeightBytes, built_in, product_groups
from onnxreg.converters.search.search import Search, run_judged
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.inputs.recipe_file import RecipeFile, SearchCandidate
from onnxreg.schema.manifest.draft import Draft

Make = Callable[..., Path]
Find = Callable[..., Draft]
STEPS = [{"name": "fp32", "pass": "OnnxConversion"}]
OUTPUTS = [{"step": "fp32", "path": "model.onnx"}]
RUINOUS: Mapping[str, Any] = {
    "name": "ruined",
    "steps": [
        {"name": "x", "pass": "OnnxBlockWiseRtnQuantization", "params": {"bits": 4, "block_size": 256}}
    ],
}
BROKEN = {
    "name": "broken",
    "steps": [{"name": "x", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 7}}],
}


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", "")


@pytest.fixture(scope="module")
def exported(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has the result of the first step, for the searches of this file."""
    directory = tmp_path_factory.mktemp("exported")
    recipe = RecipeFile.from_json({"task": "pooling", "steps": STEPS, "outputs": OUTPUTS})
    (directory / "workspace").mkdir()
    cache = StepCache(directory / "cache")
    run_plan.execute(plan_export(recipe, str(encoder), "acme/x"), directory / "workspace", cache)
    return cache.root


@pytest.fixture(scope="module")
def shared_cache(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> StepCache:
    """The cache of all searches that change nothing of what makes and judges a candidate."""
    return StepCache(shutil.copytree(exported, tmp_path_factory.mktemp("shared") / "cache"))


@pytest.fixture
def write_suite(tmp_path: Path) -> Make:
    """Texts without gold, which mean_cosine needs: none is in two suites."""

    def write(name: str, start: int = 0, count: int = 220) -> Path:
        path = tmp_path / name
        rows = [
            {"text": f"w{10 + n % 50} w{10 + n // 50} w{20 + n % 7}"} for n in range(start, start + count)
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return path

    return write


def planned(
    encoder: Path, suite: Path, steps: Any = STEPS, outputs: Any = OUTPUTS, **fields: Any
) -> ExportPlan:
    value = {
        "task": "pooling",
        "steps": steps,
        "outputs": outputs,
        "evaluation": {"suite": str(suite)},
        **fields,
    }
    return plan_export(RecipeFile.from_json(value), str(encoder), "acme/x")


@pytest.fixture
def search(encoder: Path, exported: Path, shared_cache: StepCache, tmp_path: Path) -> Find:
    """Search; `alone` with a cache of its own, for a search that makes or judges candidates in another way."""

    def run(
        suite: Path,
        cache: StepCache = shared_cache,
        limit: float | None = 0.01,
        alone: bool = False,
        metric: str = "mean_cosine",
        deleted: Sequence[Path] = (),
        **request: Any,
    ) -> Draft:
        evaluation = {"suite": str(suite), "metrics": [{"metric": metric, "limit": limit}]}
        wanted = {"input": "fp32", "objective": "bytes", **request}
        workspace = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        workspace.mkdir()
        if alone:
            cache = StepCache(shutil.copytree(exported, workspace / "cache"))
        plan = planned(encoder, suite, evaluation=evaluation, search=wanted)
        for path in deleted:
            path.unlink()
        Search(plan)
        return run_judged(plan, workspace, cache)[0]

    return run


def record(draft: Draft) -> dict[str, Any]:
    return dict(draft.fields["recipe"]["parameters"]["search"])


def test_the_smallest_that_passes_wins_and_is_confirmed_on_the_other_suite(
    search: Find, write_suite: Make
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
    (winner,) = [artifact for artifact in manifest_of(draft).artifacts if artifact.path == found["output"]]
    assert winner.size == passed[found["winner"]]
    assert winner.certification.state == "certified" and winner.certification.evidence is not None
    assert winner.certification.evidence.suite == Digest.of(confirm.read_bytes())
    assert not (draft.root / ".search").exists()


@pytest.mark.more
def test_without_a_second_suite_the_groups_are_split_and_the_halves_are_recorded(
    search: Find, write_suite: Make
) -> None:
    suite = write_suite("suite.jsonl", count=440)
    draft = search(suite, candidates=["fp16"], seed=3)
    found, digest = record(draft), str(Digest.of(suite.read_bytes()))
    assert len({found["choose"], found["confirm"], digest}) == 3
    recorded = draft.fields["recipe"]["parameters"]["recipe"]["evaluation"]
    assert recorded.items() >= {"suite": digest, "half": "confirm", "seed": 3}.items()
    certificate = json.loads((draft.root / "certificates/model_fp16.onnx.json").read_bytes())
    assert certificate["suite"] == found["confirm"]
    assert certificate["metrics"][0]["samples"] == 220


def test_a_half_that_is_too_small_is_refused_before_any_work(search: Find, write_suite: Make) -> None:
    with pytest.raises(InputError, match=r"half of the suite to choose on .*150 independent items"):
        search(write_suite("suite.jsonl", count=300), candidates=["fp16"])


def test_none_passes_is_an_error_that_lists_the_nearest(search: Find, write_suite: Make) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["int8", "weights8-32", "weights4"]
    with pytest.raises(ConversionError) as caught:
        search(choose, confirm=str(confirm), candidates=names, limit=1e-12)
    message = caught.value.message
    assert "none of 3 candidates passes" in message
    assert message.index("weights8-32") < message.index("weights4 (")


@pytest.mark.more
def test_rebuild_repeats_the_path_of_the_winner(
    search: Find, write_suite: Make, encoder: Path, tmp_path: Path
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    published = manifest_of(search(choose, confirm=str(confirm), candidates=["int8", "fp16"]))
    workspace = tmp_path / "again"
    workspace.mkdir()
    again = manifest_of(rebuild(published, "acme/x:1", Materials(str(encoder), confirm), workspace))
    assert again == published
    assert published.recipe is not None
    parameters = {**published.recipe.parameters, "search": ["int8"]}
    recipe = published.recipe.model_copy(update={"parameters": parameters})
    with pytest.raises(IntegrityError, match=r"the recipe of acme/x:1: its search"):
        rebuild(
            published.model_copy(update={"recipe": recipe}),
            "acme/x:1",
            Materials(str(encoder), confirm),
            tmp_path,
        )


@pytest.mark.more
def test_a_second_search_takes_its_figures_from_the_cache(
    search: Find, write_suite: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    cache = StepCache(tmp_path / "cache")
    first = search(choose, cache, confirm=str(confirm), candidates=["int8", "fp16"])

    def fail(*_: Any) -> None:
        raise AssertionError("predicted again")

    monkeypatch.setattr("onnxreg.converters.evaluation.evaluate.predict", fail)
    second = search(choose, cache, confirm=str(confirm), candidates=["int8", "fp16"])
    assert manifest_of(first) == manifest_of(second)


@pytest.mark.parametrize(
    ("request_fields", "family", "message"),
    [
        ({"candidates": ["int9"]}, InputError, "no candidate is called int9"),
        ({"candidates": ["int8", "int8"]}, InputError, "two candidates are called int8"),
        ({"input": "fp64"}, InputError, "there is no step called fp64"),
        ({"confirm": "none.jsonl"}, NotFoundError, "no evaluation suite"),
    ],
    ids=["candidate", "twice", "step", "confirm"],
)
def test_impossible_searches_are_refused_before_any_work(
    search: Find, write_suite: Make, request_fields: dict[str, Any], family: type[Exception], message: str
) -> None:
    with pytest.raises(family, match=message):
        search(write_suite("choose.jsonl", count=440), **request_fields)


def test_items_in_both_suites_are_refused(search: Find, write_suite: Make) -> None:
    choose = write_suite("choose.jsonl")
    for confirm in (choose, write_suite("overlap.jsonl", 219)):
        with pytest.raises(InputError, match="items are in both suites"):
            search(choose, confirm=str(confirm))


@pytest.mark.more
def test_a_candidate_of_ones_own_that_fails_is_recorded(search: Find, write_suite: Make) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    draft = search(choose, confirm=str(confirm), candidates=[BROKEN, RUINOUS, "fp16"], limit=1e-4)
    states = {trial["candidate"]: trial["state"] for trial in record(draft)["candidates"]}
    assert states["broken"] == "failed" and states["fp16"] == "certified"


def test_a_candidate_is_a_line_of_steps() -> None:
    first, second = ({"name": name, "pass": "OnnxFloatToFloat16"} for name in ("a", "b"))
    SearchCandidate.from_json({"name": "own", "steps": [first, {**second, "input": "a"}]})
    for wrong in ([{**first, "input": "fp32"}], [first, {**second, "input": "fp32"}]):
        with pytest.raises(InputError, match="takes the result of the one before"):
            SearchCandidate.from_json({"name": "own", "steps": wrong})


SMALL, LARGE = "weights8-32-int8-embeddings", "fp16"
TWIN = {
    "name": "twin",
    "steps": [{"name": "x", "pass": "OnnxFloatToFloat16", "params": {"op_block_list": ["Clip"]}}],
}
"""Less than a hundredth larger than fp16."""
SLOW, NOISY, FAST, FASTER = (2.0, 1.9, 2.1), (1.3, 0.8, 1.6), (1.0, 0.9, 1.1), (0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("pair", "objective", "ratios", "states"),
    [
        ((SMALL, LARGE), "fast-enough", (SLOW, FAST), ("untried", "won")),
        ((SMALL, LARGE), "latency", (FAST, FASTER), ("certified", "won")),
        *(
            pytest.param(*row, marks=pytest.mark.more)
            for row in (
                ((SMALL, LARGE), "bytes", (SLOW, FAST), ("won", "certified")),
                ((SMALL, LARGE), "fast-enough", (NOISY, FAST), ("won", "certified")),
                ((SMALL, LARGE), "fast-enough", (SLOW, SLOW), ("won", "untried")),
                ((SMALL, LARGE), "latency", (NOISY, FAST), ("won", "certified")),
                ((SMALL, LARGE), "latency", (NOISY, FASTER), ("certified", "won")),
                (("fp16", TWIN), "fast-enough", (FAST, FASTER), ("certified", "won")),
                (("fp16", TWIN), "fast-enough", (FAST, NOISY), ("won", "certified")),
            )
        ),
    ],
)
def test_the_objective_ranks_the_candidates_that_pass(
    search: Find,
    write_suite: Make,
    monkeypatch: pytest.MonkeyPatch,
    pair: tuple[Any, Any],
    objective: str,
    ratios: tuple[tuple[float, float, float], ...],
    states: tuple[str, ...],
) -> None:
    names = [one if isinstance(one, str) else one["name"] for one in pair]
    speeds = dict(zip(names, map(Ratio._make, ratios), strict=True))

    def time(_: SourceEvaluation, path: str, file: Path, *parent: object) -> list[Latency]:
        own = [ratio for name, ratio in speeds.items() if f"/{name}/" in str(file)]
        return [Latency((path,), 1, 1.0, 1.0, 30, "typical", "base", *own)]

    monkeypatch.setattr(SourceEvaluation, "time", time)
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    found = record(search(choose, confirm=str(confirm), candidates=pair, objective=objective))
    trials = {trial["candidate"]: trial["state"] for trial in found["candidates"]}
    assert (trials | {found["winner"]: "won"}) == dict(zip(names, states, strict=True))
    assert not any("ms" in key or "ratio" in key for trial in found["candidates"] for key in trial)
    sizes = [trial.get("bytes", 0) for trial in found["candidates"]]
    assert TWIN not in pair or min(sizes) < max(sizes) < 1.01 * min(sizes)


@pytest.mark.more
def test_judged_files_are_timed_beside_the_file_in_full_precision(
    encoder: Path, write_suite: Make, tmp_path: Path
) -> None:
    steps = [*STEPS, {"name": "half", "pass": "OnnxFloatToFloat16", "input": "fp32"}]
    outputs = [*OUTPUTS, {"step": "half", "path": "half.onnx"}]
    plan = planned(encoder, write_suite("suite.jsonl"), steps, outputs)
    (tmp_path / "w").mkdir()
    draft, (table,) = run(plan, tmp_path / "w")
    (latency,) = table.latencies
    assert (latency.paths, latency.parent, latency.input) == (
        ("half.onnx",),
        "model.onnx",
        "typical (3 tokens)",
    )
    assert latency.ratio is not None and 0 < latency.ratio.low <= latency.ratio.value <= latency.ratio.high
    document = table.document(manifest_of(draft)).to_json()
    (timed,) = document["artifacts"]
    assert (document["warm_up"], document["runs"]) == (3, 30)
    assert [check["metric"] for check in timed["checks"]] == ["median_ms", "p95_ms", "ratio"]
    assert timed["parent"] == str(Digest.of((draft.root / "model.onnx").read_bytes()))
    assert not list(draft.root.glob(".*"))


def test_a_file_is_slow_above_1_1_times_its_parent_unless_the_interval_begins_below_1() -> None:
    slow, noisy = (
        [Ratio(1.2, 1.0, 1.4), Ratio(1.2, 1.15, 1.4)],
        [Ratio(1.05, 0.99, 1.11), Ratio(1.2, 0.9, 1.4)],
    )
    for ratio in (*slow, *noisy, Ratio(1.1, 1.05, 1.4), Ratio(1.05, 0.9, 1.1)):
        assert (ratio.is_slow, ratio.is_noisy) == (ratio in slow, ratio in noisy)


def test_a_short_and_a_long_input_of_the_suite_are_timed() -> None:
    feeds = [{"attention_mask": np.ones((1, 4 + number % 40))} for number in range(80)]
    inputs = typical_inputs(feeds)
    sizes = {name: feed["attention_mask"].shape[1] for name, feed in inputs.items()}
    assert sizes == {"short (8 tokens)": 8, "long (39 tokens)": 39}
    assert list(typical_inputs([{"pixels": np.ones((1, 3))}])) == ["typical"]


def test_estimates_order_candidates_as_their_files_do() -> None:
    weights = WeightBytes(products=42_000_000, tables=47_000_000, remainder=400_000)
    sizes = {candidate.name: candidate.estimate(weights) for candidate in built_in()}
    assert sizes["weights4-int8-embeddings"] < sizes["int8-int8-embeddings"]
    assert sizes["int8-int8-embeddings"] <= sizes["weights8-128-int8-embeddings"]
    assert sizes["weights8-128-int8-embeddings"] < sizes["weights8-32-int8-embeddings"]
    assert sizes["weights8-32-int8-embeddings"] < sizes["weights8-128-fp16-embeddings"] < sizes["fp16"]
    assert sizes["fp16"] < sizes["int8"] < sizes["weights8-128"]


@pytest.mark.more
def test_static_quantization_is_tried_if_there_are_rows_to_calibrate_on(
    search: Find, write_suite: Make, tmp_path: Path
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    rows = {
        name: np.ones((4, 6), dtype=np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    rows["input_ids"] = np.arange(24).reshape(4, 6) % 40
    rows["token_type_ids"] *= 0
    np.savez(tmp_path / "rows.npz", **rows)
    names = ["static-int8", "static-int8-percentile", "static-int8-mse", "fp16"]
    fields = {"confirm": str(confirm), "candidates": names, "calibration": str(tmp_path / "rows.npz")}
    found = record(search(choose, objective="latency", **fields))
    states = {trial["candidate"]: trial["state"] for trial in found["candidates"]}
    assert states["static-int8"] in ("certified", "refused"), found
    with pytest.raises(InputError, match="no candidate is called static-int8"):
        search(choose, confirm=str(confirm), candidates=names)


@pytest.mark.parametrize(
    ("choose", "confirm", "message"),
    [
        (1, None, "the half of the suite to confirm on has no items"),
        (0, None, "choose.jsonl has no items"),
        (220, 0, "confirm.jsonl has no items"),
        (0, 220, "choose.jsonl has no items"),
    ],
)
def test_an_empty_suite_or_half_is_refused_before_any_work(
    search: Find, write_suite: Make, choose: int, confirm: int | None, message: str
) -> None:
    fields = {} if confirm is None else {"confirm": str(write_suite("confirm.jsonl", 300, confirm))}
    with pytest.raises(InputError, match=message):
        search(write_suite("choose.jsonl", count=choose), candidates=["fp16"], **fields)


def test_an_item_that_was_changed_in_spaces_id_or_order_is_still_the_same(
    search: Find, write_suite: Make, tmp_path: Path
) -> None:
    choose = write_suite("choose.jsonl")
    rows = [json.loads(line) for line in choose.read_text().splitlines()]
    changed = [{"text": f" {row['text']}\n".replace(" ", "  "), "id": n} for n, row in enumerate(rows)]
    confirm = tmp_path / "confirm.json"
    confirm.write_text(json.dumps({"items": changed[::-1]}, indent=4))
    with pytest.raises(InputError, match="220 items are in both suites"):
        search(choose, confirm=str(confirm))


def test_halves_with_an_equal_item_are_refused(search: Find, tmp_path: Path) -> None:
    suite = tmp_path / "suite.jsonl"
    suite.write_text("".join(json.dumps({"text": "w10" + " " * n}) + "\n" for n in range(1, 9)))
    with pytest.raises(InputError, match="4 items are in both halves of the suite") as caught:
        search(suite)
    assert caught.value.hint == "give equal items one `group`"


def test_suites_that_allow_other_metrics_are_refused(
    encoder: Path, write_suite: Make, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"text": "w10", "text_pair": "w11", "score": 1}) + "\n")
    plan = planned(encoder, pairs, search={"input": "fp32", "confirm": str(write_suite("confirm.jsonl"))})
    message = "to choose on is judged by spearman, mean_cosine, that to confirm on by mean_cosine"
    with pytest.raises(InputError, match=message):
        Search(plan)


@pytest.fixture
def search_rows(tmp_path: Path) -> Callable[..., ExportPlan]:
    """Plan a search for a graph of arrays: from 0 to choose on, from 300 to confirm on."""
    write_mlp(tmp_path / "mlp.onnx")
    draw = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32)

    def rows(name: str, start: int, dtype: str = "float32", **labels: Any) -> str:
        np.savez(tmp_path / name, x=draw[start : start + 250].astype(dtype), **labels)
        return str(tmp_path / name)

    def run(confirm: int = 300, calibration: int = 600, dtype: str = "float32", **more: Any) -> ExportPlan:
        labels = np.arange(250) % 8
        value = {
            "task": "onnx",
            "steps": [{"name": "int8", "pass": "OnnxDynamicQuantization"}],
            "evaluation": {"suite": rows("choose.npz", 0, labels=labels)},
            "search": {
                "input": "int8",
                "confirm": rows("confirm.npz", confirm, dtype, labels=labels, **more),
                "calibration": rows("calibration.npz", calibration, dtype),
            },
        }
        plan = plan_export(RecipeFile.from_json(value), str(tmp_path / "mlp.onnx"), "acme/x")
        Search(plan)
        return plan

    return run


def test_a_suite_to_confirm_on_that_does_not_fit_ends_the_search_before_a_file_is_made(
    search_rows: Callable[..., ExportPlan], tmp_path: Path
) -> None:
    plan, cache = search_rows(y=np.ones(250)), StepCache(tmp_path / "cache")
    with pytest.raises(InputError, match="the evaluation suite holds x, y, the model takes x"):
        run_judged(plan, tmp_path, cache)
    assert not list(cache.root.rglob("*.onnx"))


def test_rows_in_both_suites_are_refused_in_any_type(search_rows: Callable[..., ExportPlan]) -> None:
    search_rows()
    for dtype in ("float32", "float64"):
        with pytest.raises(InputError, match="50 items are in both suites"):
            search_rows(confirm=200, dtype=dtype)


def test_a_candidate_is_not_calibrated_on_the_suite_to_confirm_on(
    search_rows: Callable[..., ExportPlan],
) -> None:
    search_rows(calibration=0)
    for dtype in ("float32", "float64"):
        with pytest.raises(InputError, match="100 rows for calibration are in the suite to confirm on"):
            search_rows(calibration=450, dtype=dtype)


def test_a_candidate_without_its_data_is_refused_before_any_work(search: Find, write_suite: Make) -> None:
    own = {"name": "own", "steps": [{"name": "x", "pass": "OnnxStaticQuantization", "data": "rows.npz"}]}
    for fields in ({"calibration": "rows.npz"}, {"candidates": [own]}):
        with pytest.raises(InputError, match=r"no file exists at rows\.npz"):
            search(write_suite("choose.jsonl", count=440), **fields)


@pytest.mark.more
def test_a_candidate_may_have_any_name_and_full_precision(search: Find, write_suite: Make) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    own = {
        "name": "base",
        "steps": [{"name": "x", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 17}}],
    }
    draft = search(choose, confirm=str(confirm), candidates=[own])
    found = record(draft)
    assert found["winner"] == "base"
    (winner,) = [artifact for artifact in manifest_of(draft).artifacts if artifact.path == found["output"]]
    assert (winner.precision, winner.certification.state) == ("float32", "certified")
    assert winner.certification.evidence is not None
    assert winner.certification.evidence.suite == Digest.of(confirm.read_bytes())


@pytest.mark.more
def test_the_outputs_without_a_path_stay_beside_the_winner(
    encoder: Path, write_suite: Make, tmp_path: Path
) -> None:
    wanted = {"input": "fp32", "output": "fp32.onnx", "candidates": ["fp16"]}
    plan = planned(encoder, write_suite("choose.jsonl", count=440), outputs=[], search=wanted)
    (tmp_path / "w").mkdir()
    paths = {artifact.path for artifact in run_judged(plan, tmp_path / "w")[0].artifacts}
    assert paths == {"fp32.onnx", "fp32_fp16.onnx"}


def test_a_source_that_is_too_weak_ends_the_search_before_a_file_is_made(
    search: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.random.default_rng(0).random(440).tolist()
    rows = (
        {"text": f"w{10 + n % 50}", "text_pair": f"w{n // 50} w20", "score": scores[n]} for n in range(440)
    )
    (tmp_path / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(run_plan, "execute", lambda *_: pytest.fail("a file is made"))
    with pytest.raises(ConversionError, match="spearman"):
        search(tmp_path / "suite.jsonl", metric="spearman")
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.mark.more
def test_a_metric_whose_own_limit_demands_a_gain_may_pass(search, write_suite, monkeypatch):
    monkeypatch.setattr(MeanCosine, "limit", -0.5)
    monkeypatch.setattr(MeanCosine, "loss", lambda self, parent, value: float(parent != value) * -1.0)
    draft = search(write_suite("choose.jsonl", count=440), alone=True, limit=None, candidates=["fp16"])
    assert record(draft)["winner"] == "fp16"


def test_the_suites_are_read_by_the_plan_alone(search: Find, write_suite: Make) -> None:
    suites = [write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)]
    draft = search(suites[0], confirm=str(suites[1]), candidates=["fp16"], deleted=suites)
    assert record(draft)["winner"] == "fp16"


def test_a_source_that_fails_ends_the_search(search: Find, write_suite: Make, tmp_path: Path) -> None:
    suite = write_suite("choose.jsonl", count=440)
    suite.write_text(suite.read_text() + json.dumps({"text": " "}) + "\n")
    with pytest.raises(EvaluationError, match="the source: it does not run on an item of the suite"):
        search(suite, candidates=["fp16", "int8"], seed=1)


def test_a_metric_that_fails_ends_the_search(
    search: Find, write_suite: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("a text of the suite")

    monkeypatch.setattr("onnxreg.converters.evaluation.metrics.cosines", fail)
    with pytest.raises(EvaluationError, match="the metric mean_cosine fails: KeyError"):
        search(write_suite("choose.jsonl", count=440), alone=True, candidates=["fp16", "int8"])


@pytest.mark.more
@pytest.mark.parametrize("folder", ["{start}", "{tmp}/w", "/home/ada/secret", "C:\\Users\\ada"])
def test_no_path_of_this_machine_is_published(
    search: Find,
    write_suite: Make,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    folder: str,
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    path = folder.format(tmp=tmp_path, start=encoder) + "/x.onnx"
    judge = SourceEvaluation.judge

    def fail(self: SourceEvaluation, file: Path | None) -> Any:
        if file and "int8" in file.name:
            raise ConversionError(f"x.onnx does not load: '{path}' and {file} are broken; 1/2 is 0.5")
        return judge(self, file)

    monkeypatch.setattr(SourceEvaluation, "judge", fail)
    trials = record(search(choose, confirm=str(confirm), candidates=["int8", "fp16"], objective="latency"))
    (failed,) = [trial for trial in trials["candidates"] if trial["state"] == "failed"]
    (reason,) = failed["reasons"]
    assert not {"ada", "secret", "tmp", "home"} & set(re.split(r"[/\\' ]", reason))
    assert str(tmp_path) not in reason and str(encoder) not in reason
    assert reason.endswith("are broken; 1/2 is 0.5")


def test_the_plan_knows_every_file_of_a_search(encoder: Path, write_suite: Make, tmp_path: Path) -> None:
    for folder in ("own", "shared"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "rows.npz", x=np.zeros((2, 2)))
    own = {
        "name": "own",
        "steps": [{"name": "x", "pass": "OnnxStaticQuantization", "data": str(tmp_path / "own")}],
    }
    wanted = {"input": "fp32", "calibration": str(tmp_path / "shared"), "candidates": [own]}
    plan = planned(encoder, write_suite("choose.jsonl", count=440), outputs=[], search=wanted)
    keys = [json.dumps(plan.key())]
    for folder in ("own", "shared"):
        np.savez(tmp_path / folder / "rows.npz", x=np.ones((2, 2)))
        keys.append(json.dumps(plan.key()))
    assert len(set(keys)) == 3


@pytest.mark.parametrize("options", [{"int8": False}, {"int8_embeddings": True}])
def test_the_profile_refuses_int8_options_beside_a_search(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a search makes the INT8 file by itself"):
        find("android").recipe_for(options, None, is_search=True)


@pytest.mark.more
@pytest.mark.parametrize(
    ("mixed", "others"),
    [("mixed-int8", "OnnxBlockWiseRtnQuantization"), ("mixed-stored8", "WeightQuantization")],
)
def test_groups_of_products_that_bear_it_get_dynamic_int8(
    mixed: str, others: str, search: Find, write_suite: Make
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    own = [{**BROKEN, "name": name} for name in ("group-1", f"{mixed}-1", f"{mixed}-group-1")]
    draft = search(choose, confirm=str(confirm), candidates=[*own, mixed], limit=0.02)
    steps = {step["name"]: step for step in draft.fields["recipe"]["steps"]}
    smooth, dynamic, blocks = (steps[f"search-{mixed}-{number}"] for number in (1, 2, 3))
    kinds = ["SmoothQuant", "OnnxDynamicQuantization", others]
    assert [step["pass"] for step in (smooth, dynamic, blocks)] == kinds
    groups = product_groups(models.load(draft.root / "model.onnx"))
    left = set(dynamic["params"]["nodes_to_exclude"])
    assert all(left.isdisjoint(group) or left.issuperset(group) for group in groups)
    assert dynamic["result"]["operators"]["MatMulInteger"] == sum(map(len, groups)) - len(left)


def test_products_of_all_layers_are_one_group() -> None:
    model = graph(
        "a = MatMul(x, q0) b = MatMul(a, f0) c = MatMul(b, down) d = MatMul(c, q1) y = MatMul(d, f1)",
        outputs="float[n, 80] y",
        q0=(40, 40),
        f0=(40, 80),
        down=(80, 40),
        q1=(40, 40),
        f1=(40, 80),
    )
    assert product_groups(read(model)) == []
    names = ["/layer.0/query", "/layer.0/feed", "/layer.0/down", "/layer.1/query", "/layer.1/feed"]
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    assert [sorted(group) for group in product_groups(read(model))] == [names[1::3], names[0::3], names[2:3]]


def test_products_are_told_apart_by_the_names_of_their_weights_too() -> None:
    weights = {"l0.query": (40, 40), "l0.key": (40, 40), "l1.query": (40, 40), "l1.key": (40, 40)}
    model = graph("a = MatMul(x, w0) b = MatMul(a, w1) c = MatMul(b, w2) y = MatMul(c, w3)", w0=1.0)
    del model.graph.initializer[:]
    for number, (node, (name, shape)) in enumerate(zip(model.graph.node, weights.items(), strict=True)):
        node.name, node.input[1] = f"node_linear_{number}", name
        store(model, name, np.zeros(shape, np.float32))
    groups = [["node_linear_0", "node_linear_2"], ["node_linear_1", "node_linear_3"]]
    assert sorted(product_groups(read(model))) == groups


@pytest.mark.more
def test_recipes_of_other_tools_are_tried_only_if_named(search: Find, write_suite: Make) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["ort-dynamic", "olive-dynamic", "optimum-arm64", "optimum-avx512-vnni"]
    assert {candidate.name for candidate in built_in() if candidate.is_default}.isdisjoint(names)
    found = record(search(choose, confirm=str(confirm), candidates=names, objective="latency", limit=0.3))
    tensor, olive, *channels = ({**trial, "candidate": ""} for trial in found["candidates"])
    assert channels[0] == channels[1] and channels[0]["bytes"] > tensor["bytes"] > olive["bytes"] * 0.9


@pytest.mark.more
def test_the_head_may_have_8_bits_beside_4(search: Find, write_suite: Make) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    draft = search(choose, confirm=str(confirm), candidates=["weights4-int8-head"], limit=0.9)
    nodes = [
        node for node in load_onnx(draft.root / "model_int4.onnx").graph.node if node.op_type == "MatMulNBits"
    ]
    assert [next(item.i for item in node.attribute if item.name == "bits") for node in nodes[-2:]] == [4, 8]


@pytest.mark.more
def test_one_core_gives_the_same_certified_files(
    search: Find, write_suite: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    names = ["smooth-int8", "mixed-int8"]
    drafts = [search(choose, alone=True, confirm=str(confirm), candidates=names, limit=0.02)]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    drafts.append(search(choose, alone=True, confirm=str(confirm), candidates=names, limit=0.02))
    assert manifest_of(drafts[0]) == manifest_of(drafts[1])


@pytest.mark.more
def test_a_candidate_that_loads_and_is_wrong_does_not_win(
    search: Find, write_suite: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own pass returns a graph of the right contract with other weights, as a broken quantizer would."""
    apply = OnnxDynamicQuantization.apply

    def shuffled(self: OnnxDynamicQuantization, subject: Any) -> Any:
        after = apply(self, subject)
        for name, value in after.graph.initializers.items():
            if name.endswith("_quantized"):
                value.const_value = ir.tensor(value.const_value.numpy()[::-1].copy(), name=name)
        return after

    monkeypatch.setattr(OnnxDynamicQuantization, "apply", shuffled)
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    found = record(
        search(choose, alone=True, confirm=str(confirm), candidates=["int8", "mixed-int8", "fp16"])
    )
    states = {trial["candidate"]: trial["state"] for trial in found["candidates"]}
    assert states["int8"] in ("failed", "refused") and found["winner"] != "int8"


@pytest.mark.more
def test_a_set_of_groups_that_cannot_be_made_leaves_the_candidate_as_it_is(
    search: Find, write_suite: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ConversionError("no kernel for this set")

    monkeypatch.setattr(OnnxDynamicQuantization, "apply", fail)
    choose, confirm = write_suite("choose.jsonl"), write_suite("confirm.jsonl", 300)
    draft = search(choose, alone=True, confirm=str(confirm), candidates=["mixed-int8", "int8"])
    assert record(draft)["winner"] == "mixed-int8"
    assert [step["pass"] for step in draft.fields["recipe"]["steps"]][1:2] == ["OnnxBlockWiseRtnQuantization"]
