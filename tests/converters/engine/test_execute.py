"""Running recipes on a small graph: what is made, measured and published, and what is refused."""

import gc
import json
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.graphs import draw, graph, load, operators, read, store, stored
from support.sampling import sampled

from onnxreg.converters.engine.cache import ENTRY_FILE, StepCache
from onnxreg.converters.engine.run_plan import OTHER_TOLERANCE
from onnxreg.converters.onnx import tensors
from onnxreg.converters.passes import float16, models, ort_format
from onnxreg.converters.passes.graph_passes import DynamicToFixedShape
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.runtime.golden import Runnable
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, HostError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

INT8 = {"name": "int8", "pass": "OnnxDynamicQuantization"}
FP16 = {"name": "fp16", "pass": "OnnxFloatToFloat16"}
FIXED = {"name": "fixed", "pass": "DynamicToFixedShape", "params": {"dim_param": ["batch"], "dim_value": [3]}}
STATIC = {"name": "static", "pass": "OnnxStaticQuantization", "data": "rows.npz"}
INT4 = {"name": "int4", "pass": "OnnxBlockWiseRtnQuantization", "params": {"block_size": 32}}
MIXED = {"name": "mixed", "pass": "OrtMixedPrecision", "params": {"atol": 0.1}}
TYPES = {"name_pattern": ".*", "source_dtype": 1, "target_dtype": 10}
IO = {"name": "io", "pass": "OnnxIODataTypeConverter", "params": TYPES}
FUSED = {"name": "fused", "pass": "OrtTransformersOptimization"}
OPSET = {"name": "opset", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 21}}
SAFE = {"name": "safe", "pass": "MobileSafeRewrite"}
ORT = {"name": "ort", "pass": "OrtFormat", "input": "fixed"}
LIMIT = {"metric": "min_cosine", "min": 0.9}
INPUTS = "float[batch, 64] x"


def by_step(draft: Draft) -> dict[str, Any]:
    return {step["name"]: step for step in draft.fields["recipe"]["steps"]}


def artifacts(draft: Draft) -> dict[str, DraftArtifact]:
    return {artifact.path: artifact for artifact in draft.artifacts}


def checks(draft: Draft, path: str) -> dict[str, Any]:
    return {check["metric"]: check for check in artifacts(draft)[path].fields["checks"]}


def document(draft: Draft) -> dict[str, Any]:
    """What a draft says, the files by their bytes."""
    paths = (path for path in draft.root.rglob("*") if path.is_file())
    files = {str(path.relative_to(draft.root)): path.read_bytes() for path in paths}
    return {"artifacts": draft.artifacts, "fields": draft.fields, "files": files}


@pytest.mark.parametrize(
    "step",
    sampled([INT8, FP16, FIXED, STATIC, INT4, MIXED, IO, FUSED, OPSET, SAFE], 2),
    ids=lambda step: step["pass"],
)
def test_each_pass_runs_as_a_step_on_weights_inside_and_beside_the_graph(run, monkeypatch, step):
    draft = run({"steps": [step], "checks": [LIMIT]})
    (artifact,) = draft.artifacts
    assert checks(draft, artifact.path)["min_cosine"]["verdict"] == "pass"
    record = by_step(draft)[step["name"]]
    assert (record["pass"], set(record["result"]["parity"]["outputs"])) == (step["pass"], {"y"})
    assert set(step.get("params", {})) <= set(record["params"])
    onnx.checker.check_model(str(draft.root / artifact.path), full_check=True)
    read = run({"steps": [step], "checks": [LIMIT]}, source="external.onnx")
    assert document(read)["files"] == document(draft)["files"]
    assert read.fields["source"] != draft.fields["source"]
    real = models.save
    monkeypatch.setattr(models, "save", lambda graph, path: real(graph, path, 0))
    for module in (models, tensors):
        monkeypatch.setattr(module, "MAX_SMALL_ELEMENTS", 0)
    outside = run({"steps": [step]})
    assert "external-data" in {file.role for file in outside.artifacts[0].sidecars}
    kept, expected = (load(each.root / artifact.path) for each in (outside, draft))
    assert operators(kept) == operators(expected)
    assert {each.name: each.raw_data for each in kept.graph.initializer} == {
        each.name: each.raw_data for each in expected.graph.initializer
    }


def test_external_data_is_written_in_the_folder_of_an_output(run, monkeypatch):
    """As with more than 2 GB: the data file goes where the graph goes, and is one of its files."""
    real = models.save
    monkeypatch.setattr(models, "save", lambda graph, path: real(graph, path, 1000))
    draft = run({"steps": [FIXED], "outputs": [{"step": "fixed", "path": "exports/model.onnx"}]})
    files = [(file.role, file.path) for file in draft.artifacts[0].sidecars]
    assert files == [("external-data", "exports/model.onnx.data")]


def test_a_certificate_names_the_weights_beside_its_graph(run, home):
    evaluation = {"suite": "rows.npz", "artifacts": ["original.onnx"]}
    draft = run(
        {"steps": [{"name": "original", "pass": "Original"}], "evaluation": evaluation}, None, "external.onnx"
    )
    certificate = json.loads((draft.root / "certificates" / "original.onnx.json").read_bytes())
    weights = Digest.of((home / "weights.bin").read_bytes())
    assert certificate["external_data"] == {certificate["artifact"]: [weights]}


def test_the_users_files_are_copied_and_stay_writable(run, home, tmp_path):
    files = [home / "external.onnx", home / "weights.bin"]
    before = [(file.stat().st_mode, file.stat().st_nlink) for file in files]
    steps = [{"name": "original", "pass": "Original"}]
    draft = run({"steps": steps}, StepCache(tmp_path / "cache"), "external.onnx")
    assert (draft.root / "weights.bin").read_bytes() == files[1].read_bytes()
    assert [(file.stat().st_mode, file.stat().st_nlink) for file in files] == before


@pytest.mark.parametrize(
    ("params", "precision", "needs"),
    [
        *(({"block_size": size}, "int8-weights", ["MatMulNBits", "MatMulNBits bits=8"]) for size in (32, 64, 128)),
        ({"block_size": 32, "accuracy_level": 4}, "int8", ["MatMulNBits", "MatMulNBits accuracy_level", "MatMulNBits bits=8"]),
    ],
)  # fmt: skip
def test_8_bit_weights_alone_claim_no_quantized_activations(run, params, precision, needs):
    draft = run({"steps": [{**INT4, "name": "w8", "params": {"bits": 8, **params}}]})
    (artifact,) = draft.artifacts
    assert (artifact.format, artifact.precision, artifact.fields["contrib"]) == (
        "onnx-int8",
        precision,
        needs,
    )
    if precision == "int8":
        return
    requested = artifact.fields["quantization"]["requested"]
    assert (requested["pass"], requested["bits"]) == ("OnnxBlockWiseRtnQuantization", 8)
    assert '"scheme"' not in json.dumps([artifact.fields, draft.fields])
    assert by_step(draft)["golden-w8"]["params"]["tolerance"] == OTHER_TOLERANCE


def test_texts_are_inputs_and_outputs(run, home, tmp_path):
    """Also after a cached load; ORT format is compared by their values."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'
        " g (string[batch, 2] x) => (string[batch, 2] label, float[batch, 2] y) {"
        ' y = ai.onnx.ml.LabelEncoder <keys_strings = ["1"], values_floats = [2.5]> (x)'
        ' label = ai.onnx.ml.LabelEncoder <keys_floats = [2.5], values_strings = ["yes"]> (y) }'
    )
    onnx.save(model, home / "labels.onnx")
    assert draw(model)[0]["x"].dtype.kind == "U", "addresses of objects would be in the digest"
    cache = StepCache(tmp_path / "cache")
    made = [run({"steps": [FIXED, ORT]}, cache, "labels.onnx") for _ in range(2)]
    assert document(made[0]) == document(made[1])
    (home / "feeds.json").write_text(json.dumps({"x": [["1", "no"]]}))
    labels = Runnable(home / "labels.onnx")
    assert labels.run(labels.read(home / "feeds.json"))["label"].tolist() == [["yes", "_Unused"]]


@pytest.mark.parametrize(
    ("kind", "sizes", "roles"),
    [
        ("float", 64, {"golden"}),
        ("float", 0, {"golden"}),
        ("int16", 64, set()),
        ("uint64", 64, set()),
        ("float", 40_000, set()),
    ],
)
def test_a_graph_has_golden_vectors_if_they_fit_the_file(run, home, kind, sizes, roles):
    sides = f"{kind}[batch, {sizes}] x", "float[batch, 1] y"
    body = "f = Cast <to = 1> (x) y = ReduceL1 <axes = [1]> (f)"
    onnx.save(graph(body, *sides, opset=17), home / "max.onnx")
    (artifact,) = run({"steps": [OPSET]}, source="max.onnx").artifacts
    assert {file.role for file in artifact.sidecars} == roles


def test_a_tree_is_published_with_its_parents(run):
    paths = {"fixed": "a/model.onnx", "ort": "a/model.ort"}
    outputs = [*({"step": step, "path": path} for step, path in paths.items()), {"step": "int8"}]
    draft = run({"steps": [FIXED, ORT, {**INT8, "input": "fixed"}, FP16], "outputs": outputs})
    assert {path: (each.parent, each.format) for path, each in artifacts(draft).items()} == {
        "a/model.onnx": (None, "onnx"),
        "a/model.ort": ("a/model.onnx", "ort"),
        "int8.onnx": ("a/model.onnx", "onnx-int8"),
    }
    assert [file.role for file in artifacts(draft)["a/model.ort"].sidecars] == ["operator-config"]
    assert list(by_step(draft))[:4] == ["fixed", "fp16", "ort", "int8"]
    assert {path.name for path in draft.root.iterdir()} == {"a", "int8.onnx"}
    parity = checks(draft, "int8.onnx")[
        "max_abs_diff"
    ]  # of the source, on inputs that fit: two runs of three rows
    assert (parity["value"] > 0, parity["samples"]) == (True, 6)


def test_steps_may_have_names_of_the_program_and_data_are_recorded_by_digest_alone(run):
    steps = [{**INT8, "name": "subject"}, {**INT8, "name": "steps"}, {**STATIC, "name": "loaded"}]
    draft = run({"steps": steps})
    assert len(draft.artifacts) == 3
    asked = draft.fields["recipe"]["parameters"]["recipe"]
    assert asked["steps"][2]["data"].startswith("sha256:") and "rows" not in str(asked)


def not_numbers() -> Any:
    return graph("y = MatMul(x, w)", INPUTS, "float[batch, 8] y", w=np.full((64, 8), np.nan, np.float32))


def whole_numbers() -> Any:
    return graph("y = ArgMax <axis = 1, keepdims = 0> (x)", INPUTS, "int64[batch] y", opset=17)


OF_ORT = {"name": "int8", "pass": "ModelBuilder", "params": {"precision": "int4"}, "input": "ort"}
REFUSED: dict[str, tuple[dict[str, Any], Callable[[], Any] | None, Any, str]] = {
    "a module": ({"steps": [{"name": "fp32", "pass": "OnnxConversion"}]}, None, InputError,
                 "step fp32: OnnxConversion takes a module, and the source is not one"),
    "a module of a step": ({"steps": [FIXED, ORT, OF_ORT]}, None, InputError, r"step int8: .* and the result of ort is not one"),
    "an axis": ({"steps": [{**FIXED, "params": {"dim_param": ["sequence"], "dim_value": [3]}}]}, None, InputError, "sequence"),
    "a node": ({"steps": [{**INT8, "params": {"nodes_to_exclude": ["n"]}}]}, None, InputError, "no node"),
    "a pattern": ({"steps": [{**IO, "params": {"name_pattern": "nothing"}}]}, None, InputError, "nothing"),
    "a difference": ({"steps": [INT4], "checks": [{"metric": "max_abs_diff", "max": 0.001}]}, None, ConversionError,
                     r"int4\.onnx does not meet its recipe: max_abs_diff is .*, the limit is 0.001"),
    "a size": ({"steps": [INT4], "checks": [{"metric": "bytes", "max": 100}]}, None, ConversionError, r"bytes is .*, the limit is 100"),
    "not numbers": ({"steps": [INT8]}, not_numbers, ConversionError, "the source itself gives NaN or infinity in y"),
    "no floats": ({"steps": [FIXED], "checks": [LIMIT]}, whole_numbers, InputError, r"fixed\.onnx: min_cosine is not measured here"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_requirements_and_limits_that_do_not_hold(run, home, case):
    value, source, family, message = REFUSED[case]
    if source:
        onnx.save(source(), home / "mlp.onnx")
    with pytest.raises(family, match=message):
        run(value)


@pytest.mark.parametrize("act", [gc.freeze, gc.unfreeze])
def test_the_collector_of_garbage_is_left_as_it_was(run, act, request):
    request.addfinalizer(gc.freeze)  # as conftest.py does
    act()
    with pytest.raises(ConversionError, match="does not meet its recipe"):
        run(REFUSED["a size"][0])
    assert bool(gc.get_freeze_count()) is (act is gc.freeze)


def test_a_wrong_first_step_is_found_though_its_shape_is_another(run, monkeypatch):
    real = DynamicToFixedShape.apply

    def spoiled(self: Any, subject: Any) -> Any:
        made = models.to_proto(real(self, subject))
        store(made, "w2", -stored(made)["w2"])
        return read(made)

    monkeypatch.setattr(DynamicToFixedShape, "apply", spoiled)
    with pytest.raises(ConversionError, match="DynamicToFixedShape: the output y is not the parent's"):
        run({"steps": [FIXED]})


def test_an_optional_step_is_skipped_on_record_with_what_comes_after(run, monkeypatch):
    def without_flatbuffers(self: Any, subject: Any) -> None:
        raise HostError("missing dependency: flatbuffers")

    monkeypatch.setattr(ort_format.OrtFormat, "requires", without_flatbuffers)
    with pytest.raises(HostError, match="flatbuffers"):
        run({"steps": [FIXED, ORT]})
    steps = [FIXED, {**ORT, "optional": True}]
    draft = run({"steps": steps, "outputs": [{"step": "ort"}, {"step": "fixed"}]})
    assert by_step(draft)["ort"]["skipped"] == "missing dependency: flatbuffers"
    assert list(artifacts(draft)) == ["fixed.onnx"]
    with pytest.raises(ConversionError, match="every output was skipped"):
        run({"steps": steps, "outputs": [{"step": "ort"}]})


# What the cache gives


TREE = [FIXED, {**FP16, "input": "fixed"}, {**INT8, "input": "fixed"}, ORT]
FIVE = {**FIXED, "params": {"dim_param": ["batch"], "dim_value": [5]}}
AS_M = {"steps": [INT8], "outputs": [{"step": "int8", "path": "m.onnx"}]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "nothing": ({"steps": TREE}, {"steps": TREE}, []),
    "a last step": ({"steps": TREE}, {"steps": [*TREE[:2], {**TREE[2], "params": {"per_channel": False}}, ORT]}, ["int8"]),
    "the first step": ({"steps": TREE}, {"steps": [FIVE, TREE[1]]}, ["fixed", "fp16"]),
    "a name": (AS_M, {"steps": [{**INT8, "name": "small"}], "outputs": [{"step": "small", "path": "m.onnx"}]}, []),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_step_runs_again_and_what_comes_after_and_nothing_else(run, ran, tmp_path, change):
    cache = StepCache(tmp_path / "cache")
    before, after, expected = CHANGES[change]
    run(before, cache)
    assert ran == [step["name"] for step in before["steps"]]
    assert (document(run(after, cache)), [*ran]) == (document(run(after)), expected)


@pytest.mark.parametrize("what", ["source", "data", "tools"])
def test_other_bytes_or_tools_are_another_key(run, ran, home, tmp_path, monkeypatch, what):
    cache = StepCache(tmp_path / "cache")
    run({"steps": [STATIC]}, cache)
    if what == "source":
        model = onnx.load(home / "mlp.onnx")
        store(model, "w1", np.ones((64, 32), np.float32))
        onnx.save(model, home / "mlp.onnx")
    elif what == "data":
        np.savez(home / "rows.npz", x=np.random.default_rng(2).normal(size=(4, 64)).astype(np.float32))
    else:
        monkeypatch.setattr("onnxreg.converters.engine.run_plan.tools", lambda: {"onnxruntime": "99"})
    run({"steps": [STATIC]}, cache)
    assert ran == ["static"]


def test_a_damaged_result_is_made_again(run, ran, tmp_path):
    cache = StepCache(tmp_path / "cache")
    first = run({"steps": [INT8, FP16]}, cache)
    for place in cache.root.glob("steps/*"):
        if b"OnnxDynamicQuantization" in (place / ENTRY_FILE).read_bytes():
            (place / "int8.onnx").unlink()
            (place / "int8.onnx").write_bytes(b"something else")
    assert document(run({"steps": [INT8, FP16]}, cache)) == document(first)
    assert ran == ["int8"]


@pytest.mark.parametrize("when", ["it is loaded", "a step reads it"])
def test_a_source_that_changes_while_it_is_read_is_refused_and_not_cached(
    run, home, tmp_path, monkeypatch, when
):
    model = onnx.load(home / "mlp.onnx")
    store(model, "w1", np.ones((64, 32), np.float32))
    owner, name = (OnnxFile, "load") if when == "it is loaded" else (OnnxDynamicQuantization, "apply")
    real = getattr(owner, name)

    def changed_first(*given: Any) -> Any:
        onnx.save(model, home / "mlp.onnx")
        return real(*given)

    before, cache = (home / "mlp.onnx").read_bytes(), StepCache(tmp_path / "cache")
    with monkeypatch.context() as patch, pytest.raises(InputError, match="changed while it was read"):
        patch.setattr(owner, name, changed_first)
        run({"steps": [INT8]}, cache)
    (home / "mlp.onnx").write_bytes(before)
    assert document(run({"steps": [INT8]}, cache))["files"] == document(run({"steps": [INT8]}))["files"]


# Graphs that are no better than chance, and graphs that crash ONNX Runtime


def test_a_graph_that_is_no_better_than_chance_needs_a_limit_of_the_users_own(run, home, tmp_path):
    """Calibrated on one row of ones: every range is wrong."""
    np.savez(home / "rows.npz", x=np.ones((1, 64), np.float32))
    cache = StepCache(tmp_path / "cache")
    published = {"steps": [STATIC, {"name": "io", "pass": "MobileSafeRewrite", "input": "static"}]}
    for _ in range(2):
        with pytest.raises(ConversionError):
            run(published, cache)
        draft = run({**published, "checks": [{"metric": "min_cosine", "min": 0}]}, cache)
        assert checks(draft, "io.onnx")["min_cosine"]["verdict"] == "pass"
    unpublished = [{"name": "original", "pass": "Original"}, STATIC]
    with pytest.raises(ConversionError):  # a step that is kept without the net is not taken with it
        run({"steps": unpublished, "outputs": [{"step": "original"}]}, cache)


def test_a_stricter_limit_leaves_the_net_where_it_is(run, home):
    """A bias alone gives the constant outputs of a wrong calibration a high cosine."""
    weights = {"w": (64, 4), "b": np.full(4, 25, np.float32)}
    biased = graph("m = MatMul(x, w) y = Add(m, b)", INPUTS, "float[batch, 4] y", opset=17, **weights)
    onnx.save(biased, home / "mlp.onnx")
    np.savez(home / "rows.npz", x=np.full((1, 64), 1e-3, np.float32))
    with pytest.raises(ConversionError, match="does not follow the input"):
        run({"steps": [STATIC], "checks": [LIMIT]})


def sequence_first(kind: int = TensorProto.FLOAT) -> Any:
    """A Transpose before a product: in float16 ONNX Runtime (1.31, x86-64) dies while it loads the graph."""
    body = f"h = Cast<to = {kind}>(x) t = Transpose<perm = [1, 0, 2]>(h) m = MatMul(t, w) y = Cast<to = 1>(m)"
    model = graph(body, "float[batch, 5, 64] x", "float[5, batch, 32] y", opset=17, w=(64, 32))
    store(model, "w", stored(model)["w"].astype(onnx.helper.tensor_dtype_to_np_dtype(kind)))
    return model


def test_float16_is_made_without_what_crashes(run, home):
    onnx.save(sequence_first(), home / "mlp.onnx")
    assert checks(run({"steps": [FP16]}), "fp16.onnx")["min_cosine"]["value"] > 0.999


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ONNX Runtime crashes on x86-64")
def test_a_crash_of_onnx_runtime_names_the_output_or_the_source_and_the_others_are_kept(
    run, ran, home, tmp_path, monkeypatch
):
    """If this fails, ONNX Runtime may have fixed what `crashing_transposes` is for: remove that."""
    onnx.save(sequence_first(), home / "first.onnx")
    monkeypatch.setattr(float16, "crashing_transposes", lambda model: iter(()))
    cache = StepCache(tmp_path / "cache")
    with pytest.raises(ConversionError) as caught:
        run({"steps": [INT8, FP16]}, cache, source="first.onnx")
    assert "fp16.onnx" in caught.value.message and "OnnxFloatToFloat16" in caught.value.message
    run({"steps": [INT8]}, cache, source="first.onnx")
    assert ran == []
    onnx.save(sequence_first(TensorProto.FLOAT16), home / "first.onnx")
    with pytest.raises(ConversionError) as caught:
        run({"steps": [INT8]}, source="first.onnx")
    assert "first.onnx" in caught.value.message
