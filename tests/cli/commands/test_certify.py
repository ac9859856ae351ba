"""`reg certificates`: what a version's certificates say, and whether its item scores give the same."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.registries import owner
from support.registries.timed import check, record
from support.sampling import sampled

from onnxreg.cli.versions import searched
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.latency import Latency, Ratio
from onnxreg.registry import Registry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.vocabulary import LOSS

PATH = "certificates/model_int8.onnx.json"
SCORES = "certificates/model_int8.onnx.mean_cosine.csv"
RECOMPUTE = ("certificates", "acme/x", "--recompute")
Publish = Callable[..., Registry]


@pytest.fixture(scope="module")
def drafts(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, Draft]:
    """Two exports of one encoder: without item scores, and with them."""
    root, drafts = tmp_path_factory.mktemp("certify"), {}
    cache = StepCache(root / "cache")
    rows = [{"text": f"w{10 + n % 50} w{10 + n // 50}", "group": f"document {n // 2}"} for n in range(500)]
    (root / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    int8 = {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"}
    steps = [{"name": "fp32", "pass": "OnnxConversion"}, int8]
    outputs = [{"step": "fp32", "path": "model.onnx"}, {"step": "int8", "path": "model_int8.onnx"}]
    source = make_checkpoint("bert", "")
    for item_scores in (False, True):
        evaluation = {"suite": str(root / "suite.jsonl"), "name": "texts", "item_scores": item_scores}
        recipe = {"task": "pooling", "steps": steps, "outputs": outputs, "evaluation": evaluation}
        (root / str(item_scores)).mkdir()
        plan = plan_export(RecipeFile.from_json(recipe), str(source), "acme/x")
        drafts[item_scores] = execute(plan, root / str(item_scores), cache)
    return drafts


@pytest.fixture
def publish(drafts: dict[bool, Draft], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Publish:
    """Publish a copy of a draft, one of its files edited, and maybe the checks of the INT8 artifact."""
    registry = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(
        item_scores: bool,
        path: str = "",
        edit: Callable[[bytes], bytes] = bytes,
        recheck: Callable[[Any], object] = id,
    ) -> Registry:
        draft = deepcopy(drafts[item_scores])
        recheck(draft.artifacts[1].fields["checks"])
        with registry.workspace() as workspace:
            for name in draft.paths():
                (workspace / name).parent.mkdir(parents=True, exist_ok=True)
                data = (draft.root / name).read_bytes()
                (workspace / name).write_bytes(edit(data) if name == path else data)
            registry.add(replace(draft, root=workspace))
        return registry

    return run


def test_every_figure_is_listed_and_found_by_a_query(reg, publish):
    registry = publish(False)
    assert reg("certificates", "acme/x").ended(0, "mean_cosine v1", "certified")
    (certificate,) = reg("certificates", "acme/x", "--json").json["certificates"]
    assert (certificate["artifact"], certificate["state"]) == ("model_int8.onnx", "certified")
    (metric,) = certificate["metrics"]
    assert (metric["metric"], metric["samples"], metric["groups"]) == ("mean_cosine", 500, 250)
    assert certificate["differences"] is None and 0 <= metric["loss"] < metric["limit"] == 0.01
    artifact = registry.get("acme/x").manifest.artifacts[1]
    names = {check.name: check.direction for check in artifact.checks if check.name.startswith("texts/")}
    assert names == {"texts/mean_cosine": "higher", "texts/mean_cosine/loss": "lower"}
    for test, count in (("'] >= 0.5", 1), ("/loss'] < 0.01", 1), ("'] > 1.5", 0)):
        assert len(reg("query", f"metric['texts/mean_cosine{test}", "--json").json["matches"]) == count
    assert reg(*RECOMPUTE).ended(3, "no item scores", "--item-scores")
    record(registry, "acme/x", check(1.8))
    assert reg("certificates", "acme/x").ended(0, "1.80 x, x86_64+avx2")
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact.digest)}
    value |= {"suite": str(Digest.of(b"field")), "state": "refused"}
    owner.attest(registry, "acme/x", json.dumps(value).encode())
    (certificate,) = reg("certificates", "acme/x", "--json").json["certificates"]
    assert (certificate["state"], certificate["stated"]) == ("refused", "certified")
    assert reg("certificates", "acme/x").ended(0, "refused")
    assert "refused" in reg("show", "acme/x", "--json").err


def test_item_scores_in_an_order_of_their_own_give_the_same_verdict(reg, publish, drafts):
    publish(True)
    assert reg(*RECOMPUTE).ended(0, "1 certificate as recorded")
    assert reg(*RECOMPUTE, "--json").json["certificates"][0]["differences"] == []
    header, *rows = (drafts[True].root / SCORES).read_text().splitlines()
    assert header == "group,parent:cosine,candidate:cosine"
    pairs = [tuple(map(float, row.split(","))) for row in rows]
    assert [group for group, *_ in pairs] == [n // 2 for n in range(500)]
    scores = [[row[1:] for row in pairs[n : n + 2]] for n in range(0, 500, 2)]
    assert scores == sorted(sorted(group) for group in scores)


def edit_scores(data: bytes) -> bytes:
    header, _, *rows = data.splitlines(keepends=True)
    return b"".join([header, b"0,1,0.5\n", *rows])


def edit(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def run(data: bytes) -> bytes:
        value = canonical.decode(data, "certificate")
        change(value)
        return canonical.encode(value) + b"\n"

    return run


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (SCORES, edit_scores, "blob"),
        (PATH, edit(lambda value: value["metrics"][0].update(loss=0.0)), "loss is 0.0, recomputed"),
        (PATH, edit(lambda value: value["metrics"][0].update(rule="loss/none")), "do not fit the metric"),
        (PATH, edit(lambda value: value.update(artifact=str(Digest.of(b"x")))), "another artifact or suite"),
        (
            PATH,
            edit(lambda value: value.update(state="refused")),
            "says refused, the manifest says certified",
        ),
    ],
    ids=["scores", "loss", "rule", "artifact", "state"],
)
def test_edits_are_noticed(reg, publish, path, change, message):
    publish(True, path, change)
    done = reg(*RECOMPUTE)
    assert done.status in (3, 4) and message in done.err


def flatter(checks: Any) -> None:
    """The loss that gates and queries read becomes nothing."""
    checks[-1] |= {"value": 0.0, "interval": [0.0, 0.0]}


FLATTERED = edit(lambda value: flatter(value["checks"]))


def test_the_checks_that_gates_read_are_derived_too(reg, publish):
    publish(True, PATH, FLATTERED, flatter)
    done = reg(*RECOMPUTE, "--json")
    (certificate,) = done.json["certificates"]
    wrong = {(item["metric"], item["key"]): item["recorded"] for item in certificate["differences"]}
    name = "texts/mean_cosine/loss"
    assert (done.status, wrong) == (4, {(name, "interval"): [0.0, 0.0], (name, "value"): 0.0})


@pytest.mark.parametrize("forged", ["certificate", "manifest", "a further check"])
def test_a_manifest_with_other_checks_than_its_certificate_is_no_evidence(reg, publish, forged):
    changes: dict[str, tuple[Any, ...]] = {
        "certificate": (PATH, FLATTERED),
        "manifest": (PATH, bytes, flatter),
        "a further check": (PATH, bytes, lambda checks: checks.append(checks[-1] | {"name": LOSS})),
    }
    publish(True, *changes[forged])
    assert reg("certificates", "acme/x").status == 4


Search = Callable[..., Any]


@pytest.fixture
def search(reg: Any, make_checkpoint: Callable[..., Path], tmp_path: Path) -> Search:
    """Certify a tiny encoder by an objective, with these candidates."""
    rows = [{"text": f"w{10 + n % 50} w{10 + n // 50} w{20 + n % 7}"} for n in range(440)]
    (tmp_path / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["export", make_checkpoint("bert", ""), "--task", "pooling", "--name", "acme/y", "--certify"]
    words += ["--eval-suite", tmp_path / "suite.jsonl", "--objective"]
    return lambda objective, *names: reg(*words, objective, *(f"--candidate={name}" for name in names))


@pytest.mark.more
def test_a_search_counts_its_candidates_and_lists_those_that_none_beats(reg: Any, search: Search) -> None:
    names = ("int8", "weights8-32", "fp16")
    done = search("latency", *names)
    assert done.status == 0, done.err
    steps = [line.partition(" of 3: ") for line in done.err.splitlines() if " of 3: " in line]
    assert [number for number, _, _ in steps] == ["1", "2", "3"]
    assert {label.split()[0] for _, _, label in steps} == set(names)
    lines = done.out.splitlines()
    sizes = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(names)}
    front = pareto_front(done)
    assert set(front) <= set(names) and min(sizes, key=lambda name: sizes[name]) in front
    assert reg("show", "acme/y", "--benchmark").ended(0, *(f"candidate {name}" for name in names))
    (document,) = reg("show", "acme/y", "--benchmark", "--json").json["benchmarks"]
    ratios = {
        item["name"]: [check["value"] for check in item["checks"] if check["metric"] == "ratio"]
        for item in document["candidates"]
    }
    assert ratios.keys() == set(names) and all(map(all, ratios.values()))


def test_a_candidate_that_was_made_and_timed_is_not_called_untried() -> None:
    candidates = [
        {"candidate": "int8", "state": "certified", "bytes": 2000},
        {"candidate": "fp16", "state": "untried", "bytes": 4000},
        {"candidate": "int4", "state": "untried"},
    ]
    search = {"candidates": candidates, "tried": 1, "winner": "int8"}
    recipe = SimpleNamespace(parameters={"search": search})
    version: Any = SimpleNamespace(manifest=SimpleNamespace(recipe=recipe, artifacts=()))
    first, _, *rows = searched(version, ())
    assert first.startswith("tried 1 of 3 candidates")
    assert [line.split()[0] for line in rows] == ["int8", "fp16"]
    assert rows[1].endswith("timed, not judged")


def pareto_front(done: Any) -> list[str]:
    (line,) = (line for line in done.out.splitlines() if line.startswith("Pareto front"))
    return str(line).partition(": ")[2].split(", ")


@pytest.mark.more
def test_on_a_machine_too_busy_to_rank_bytes_decide_and_the_last_line_says_so(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy(path: str, run: Any, parent: str, *_: Any) -> list[Latency]:
        fast = "int8" in path  # the larger file: most weights are of embeddings
        return [Latency((path,), 1, 1.0, 1.0, 30, "typical", parent, Ratio(0.9 if fast else 1.2, 0.5, 3.0))]

    monkeypatch.setattr("onnxreg.converters.evaluation.evaluate.compare", noisy)
    done = search("latency", "int8", "fp16")
    assert done.status == 0, done.err
    assert "winner is fp16" in done.out
    busy = [line for line in (done.out + done.err).splitlines() if "busy" in line]
    assert len(busy) == 1 and "model_fp16.onnx" in busy[0]
    assert done.out.count("noisy") == 2


@pytest.mark.more
@pytest.mark.parametrize("objective", sampled(["bytes", "fast-enough"], 2, pytest.mark.large))
def test_if_only_slower_files_pass_the_last_line_says_what_they_cost_and_save(
    search: Search, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    def slow(path: str, run: Any, parent: str, *_: Any) -> list[Latency]:
        return [Latency((path,), 1, 1.0, 1.0, 30, "typical", parent, Ratio(1.75, 1.6, 1.9))]

    monkeypatch.setattr("onnxreg.converters.evaluation.evaluate.compare", slow)
    done = search(objective, "int8", "fp16")
    assert done.status == 0, done.err
    assert "winner is fp16" in done.out
    assert pareto_front(done) == ["fp16"]
    (warning,) = [line for line in (done.out + done.err).splitlines() if "1.75 times" in line]
    assert "model_fp16.onnx" in warning and "kB less" in warning
