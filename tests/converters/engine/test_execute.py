"""Running recipes on a small graph: what is made, measured and published, and what is refused."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxreg.converters.engine.cache import ENTRY_FILE, StepCache
from onnxreg.converters.engine.describe import OTHER_TOLERANCE
from onnxreg.converters.passes import file_passes, float16
from onnxreg.converters.passes.tools import model_file, samples
from onnxreg.converters.runtime.golden import Runnable
from onnxreg.schema.core.errors import ConversionError, HostError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

INT8 = {"name": "int8", "pass": "OnnxDynamicQuantization"}
FP16 = {"name": "fp16", "pass": "OnnxFloatToFloat16"}
FIXED = {"name": "fixed", "pass": "DynamicToFixedShape", "params": {"dim_param": ["batch"], "dim_value": [3]}}
STATIC = {"name": "static", "pass": "OnnxStaticQuantization", "data": "rows.npz"}
INT4 = {"name": "int4", "pass": "OnnxBlockWiseRtnQuantization", "params": {"block_size": 32}}
MIXED = {"name": "mixed", "pass": "OrtMixedPrecision", "params": {"atol": 0.1}}
IO = {
    "name": "io",
    "pass": "OnnxIODataTypeConverter",
    "params": {"name_pattern": ".*", "source_dtype": 1, "target_dtype": 10},
}
FUSED = {"name": "fused", "pass": "OrtTransformersOptimization"}
ORT = {"name": "ort", "pass": "OrtFormat", "input": "fixed"}
LIMIT = {"metric": "min_cosine", "min": 0.9}


def by_step(draft: Draft) -> dict[str, Any]:
    return {step["name"]: step for step in draft.fields["recipe"]["steps"]}


def artifacts(draft: Draft) -> dict[str, DraftArtifact]:
    return {artifact.path: artifact for artifact in draft.artifacts}


def checks(artifact: DraftArtifact) -> dict[str, Any]:
    return {check["metric"]: check for check in artifact.fields["checks"]}


OPSET = {"name": "opset", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 21}}
SAFE = {"name": "safe", "pass": "MobileSafeRewrite"}
OF_GRAPHS = [INT8, FP16, FIXED, STATIC, INT4, MIXED, IO, FUSED, OPSET, SAFE]


@pytest.mark.parametrize(
    "step", [*OF_GRAPHS, {"name": "ort", "pass": "OrtFormat"}], ids=lambda step: step["pass"]
)
def test_each_pass_takes_weights_that_lie_beside_the_graph(run: Any, step: dict[str, Any]) -> None:
    inside, outside = run({"steps": [step]}), run({"steps": [step]}, source="external.onnx")
    assert inside.paths() == outside.paths()
    for path in inside.paths():
        assert (inside.root / path).read_bytes() == (outside.root / path).read_bytes(), path


@pytest.mark.parametrize("step", OF_GRAPHS, ids=lambda step: step["pass"])
def test_each_pass_can_leave_them_there(
    run: Any, monkeypatch: pytest.MonkeyPatch, step: dict[str, Any]
) -> None:
    inside = run({"steps": [step]})
    real = model_file.save
    monkeypatch.setattr(model_file, "save", lambda graph, path: real(graph, path, 0))
    monkeypatch.setattr(model_file, "MAX_SMALL_ELEMENTS", 0)
    outside = run({"steps": [step]})
    (artifact,) = outside.artifacts
    assert "external-data" in {file.role for file in artifact.sidecars}
    kept, expected = (model_file.load(each.root / artifact.path).graph for each in (outside, inside))
    assert [node.op_type for node in kept.node] == [node.op_type for node in expected.node]
    assert {each.name: each.raw_data for each in kept.initializer} == {
        each.name: each.raw_data for each in expected.initializer
    }


@pytest.mark.parametrize("step", OF_GRAPHS, ids=lambda step: step["pass"])
def test_each_pass_runs_as_a_step(run: Any, step: dict[str, Any]) -> None:
    draft = run({"steps": [step], "checks": [LIMIT]})
    (artifact,) = draft.artifacts
    assert checks(artifact)["min_cosine"]["verdict"] == "pass"
    record = by_step(draft)[step["name"]]
    assert record["pass"] == step["pass"]
    assert set(record["result"]["parity"]["outputs"]) == {"y"}
    assert set(step.get("params", {})) <= set(record["params"])
    onnx.checker.check_model(str(draft.root / artifact.path), full_check=True)


@pytest.mark.parametrize("block_size", [32, 64, 128])
def test_8_bit_weights_alone_claim_no_quantized_activations(run: Any, block_size: int) -> None:
    params = {"bits": 8, "block_size": block_size}
    draft = run({"steps": [{**INT4, "name": "w8", "params": params}]})
    (artifact,) = draft.artifacts
    assert (artifact.format, artifact.precision) == ("onnx-int8", "int8-weights")
    assert artifact.fields["contrib"] == ["MatMulNBits", "MatMulNBits bits=8"]
    requested = artifact.fields["quantization"]["requested"]
    assert (requested["pass"], requested["bits"]) == ("OnnxBlockWiseRtnQuantization", 8)
    assert '"scheme"' not in json.dumps([artifact.fields, draft.fields])
    vectors = by_step(draft)["golden-w8"]["params"]
    assert vectors["tolerance"] == OTHER_TOLERANCE


def test_texts_are_inputs_and_outputs(run: Any, home: Path, tmp_path: Path) -> None:
    """Also after a cached load; ORT format is compared by their values."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'
        " g (string[batch, 2] x) => (string[batch, 2] label, float[batch, 2] y) {"
        ' y = ai.onnx.ml.LabelEncoder <keys_strings = ["1"], values_floats = [2.5]> (x)'
        ' label = ai.onnx.ml.LabelEncoder <keys_floats = [2.5], values_strings = ["yes"]> (y) }'
    )
    onnx.save(model, home / "labels.onnx")
    assert samples.draw(model)[0]["x"].dtype.kind == "U", "addresses of objects would be in the digest"
    cache = StepCache(tmp_path / "cache")
    made = [run({"steps": [FIXED, ORT]}, cache, "labels.onnx") for _ in range(2)]
    assert document(made[0]) == document(made[1])
    (home / "feeds.json").write_text(json.dumps({"x": [["1", "no"]]}))
    graph = Runnable(home / "labels.onnx")
    assert graph.run(graph.read(home / "feeds.json"))["label"].tolist() == [["yes", "_Unused"]]


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
def test_a_graph_has_golden_vectors_if_they_fit_the_file(
    run: Any, home: Path, kind: str, sizes: int, roles: set[str]
) -> None:
    head = f"({kind}[batch, {sizes}] x) => (float[batch, 1] y)"
    body = "f = Cast <to = 1> (x) y = ReduceL1 <axes = [1]> (f)"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {head} {{ {body} }}')
    onnx.save(model, home / "max.onnx")
    (artifact,) = run({"steps": [OPSET]}, source="max.onnx").artifacts
    assert {file.role for file in artifact.sidecars} == roles


def test_8_bit_weights_with_int8_activations_are_int8(run: Any) -> None:
    params = {"bits": 8, "block_size": 32, "accuracy_level": 4}
    (artifact,) = run({"steps": [{**INT4, "name": "w8", "params": params}]}).artifacts
    assert (artifact.format, artifact.precision) == ("onnx-int8", "int8")
    assert "MatMulNBits accuracy_level" in artifact.fields["contrib"]


def test_a_tree_is_published_with_its_parents(run: Any) -> None:
    outputs = [
        {"step": "fixed", "path": "a/model.onnx"},
        {"step": "ort", "path": "a/model.ort"},
        {"step": "int8"},
    ]
    draft = run({"steps": [FIXED, ORT, {**INT8, "input": "fixed"}, FP16], "outputs": outputs})
    found = artifacts(draft)
    assert {path: one.parent for path, one in found.items()} == {
        "a/model.onnx": None,
        "a/model.ort": "a/model.onnx",
        "int8.onnx": "a/model.onnx",
    }
    assert [one.format for one in found.values()] == ["onnx", "ort", "onnx-int8"]
    assert [file.role for file in found["a/model.ort"].sidecars] == ["operator-config"]
    assert list(by_step(draft))[:4] == ["fixed", "fp16", "ort", "int8"]
    assert {path.name for path in draft.root.iterdir()} == {"a", "int8.onnx"}


def test_a_fixed_graph_is_held_against_the_source_on_inputs_that_fit(run: Any) -> None:
    draft = run({"steps": [FIXED, {**INT8, "input": "fixed"}]})
    told = checks(artifacts(draft)["int8.onnx"])
    assert told["max_abs_diff"]["value"] > 0, "the graph was compared with itself"
    assert told["max_abs_diff"]["samples"] == 6, "two runs of three rows"


def test_a_wrong_first_step_is_found_though_its_shape_is_another(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxreg.converters.passes.graph_passes import DynamicToFixedShape

    real = DynamicToFixedShape.apply

    def spoiled(self: Any, subject: Any) -> Any:
        made = real(self, subject)
        made.graph.node[-1].input[1], weight = "w3", made.graph.initializer[1]
        made.graph.initializer.add(name="w3", data_type=TensorProto.FLOAT, dims=weight.dims).raw_data = bytes(
            -np.frombuffer(weight.raw_data, np.float32)
        )
        return made

    monkeypatch.setattr(DynamicToFixedShape, "apply", spoiled)
    with pytest.raises(ConversionError, match="DynamicToFixedShape: the output y is not the parent's"):
        run({"steps": [FIXED]})


def test_calibration_data_are_recorded_by_digest_alone(run: Any) -> None:
    asked = run({"steps": [STATIC]}).fields["recipe"]["parameters"]["recipe"]
    assert asked["steps"][0]["data"].startswith("sha256:")
    assert "rows" not in str(asked)


def test_external_data_is_read_and_an_output_may_lie_in_a_folder(run: Any) -> None:
    value = {
        "steps": [FP16, {**FIXED}, ORT],
        "outputs": [{"step": "fp16", "path": "exports/model.onnx"}, {"step": "ort"}],
    }
    inside, outside = run(value), run(value, source="external.onnx")
    assert (
        inside.root.joinpath("exports/model.onnx").read_bytes()
        == (outside.root / "exports" / "model.onnx").read_bytes()
    )
    assert inside.fields["source"] != outside.fields["source"]


def test_large_weights_stay_beside_the_graph_in_its_folder(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with more than 2 GB: the data file goes where the graph goes, and is one of its files."""
    real = model_file.save
    monkeypatch.setattr(model_file, "save", lambda graph, path: real(graph, path, 1000))
    (artifact,) = run(
        {"steps": [FIXED], "outputs": [{"step": "fixed", "path": "exports/model.onnx"}]}
    ).artifacts
    assert [(file.role, file.path) for file in artifact.sidecars] == [
        ("external-data", "exports/model.onnx.data")
    ]


def test_a_step_that_takes_something_else_is_named(run: Any) -> None:
    with pytest.raises(
        InputError, match="step fp32: OnnxConversion takes a module, and the source is not one"
    ):
        run({"steps": [{"name": "fp32", "pass": "OnnxConversion"}]})
    with pytest.raises(InputError, match=r"step int8: .* and the result of ort is not one"):
        run(
            {
                "steps": [
                    FIXED,
                    ORT,
                    {"name": "int8", "pass": "ModelBuilder", "params": {"precision": "int4"}, "input": "ort"},
                ]
            }
        )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({**FIXED, "params": {"dim_param": ["sequence"], "dim_value": [3]}}, "sequence"),
        ({**INT8, "params": {"nodes_to_exclude": ["n"]}}, "no node"),
        ({**IO, "params": {"name_pattern": "nothing"}}, "nothing"),
    ],
)
def test_a_requirement_that_does_not_hold(run: Any, step: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, ConversionError), match=said):
        run({"steps": [step]})


def test_a_limit_that_does_not_hold(run: Any) -> None:
    with pytest.raises(
        ConversionError,
        match=r"int4\.onnx does not meet its recipe: max_abs_diff is .*, the limit is 0.001",
    ):
        run({"steps": [INT4], "checks": [{"metric": "max_abs_diff", "max": 0.001}]})
    with pytest.raises(ConversionError, match=r"bytes is .*, the limit is 100"):
        run({"steps": [INT4], "checks": [{"metric": "bytes", "max": 100}]})


def test_weights_that_are_not_numbers(run: Any, home: Path) -> None:
    graph = onnx.load(home / "mlp.onnx")
    graph.graph.initializer[1].raw_data = np.full((32, 8), np.nan, np.float32).tobytes()
    onnx.save(graph, home / "nan.onnx")
    with pytest.raises(ConversionError, match="the source itself gives NaN or infinity in y"):
        run({"steps": [INT8]}, source="nan.onnx")


def without_flatbuffers(self: Any, subject: Any) -> None:
    raise HostError("missing dependency: flatbuffers")


def test_an_optional_step_is_skipped_on_record_with_what_comes_after(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_passes.OrtFormat, "requires", without_flatbuffers)
    with pytest.raises(HostError, match="flatbuffers"):
        run({"steps": [FIXED, ORT]})
    draft = run(
        {"steps": [FIXED, {**ORT, "optional": True}], "outputs": [{"step": "ort"}, {"step": "fixed"}]}
    )
    assert by_step(draft)["ort"]["skipped"] == "missing dependency: flatbuffers"
    assert list(artifacts(draft)) == ["fixed.onnx"]
    with pytest.raises(ConversionError, match="every output was skipped"):
        run({"steps": [FIXED, {**ORT, "optional": True}], "outputs": [{"step": "ort"}]})


def test_step_names_that_the_program_has_too(run: Any) -> None:
    steps = [{**INT8, "name": name} for name in ("subject", "steps", "loaded")]
    assert len(run({"steps": steps}).artifacts) == 3


WHOLE = """<ir_version: 8, opset_import: ["" : 17]>
whole (float[batch,64] x) => (int64[batch] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }"""


def test_a_limit_on_a_graph_that_gives_no_floats_is_not_taken_for_met(run: Any, home: Path) -> None:
    onnx.save(onnx.parser.parse_model(WHOLE), home / "whole.onnx")
    value = {"steps": [FIXED], "checks": [LIMIT]}
    with pytest.raises(InputError, match=r"fixed\.onnx: min_cosine is not measured here"):
        run(value, source="whole.onnx")


def ran_steps(ran: list[str]) -> list[str]:
    return [each.removeprefix("running ") for each in ran if each.startswith("running ")]


def document(draft: Draft) -> dict[str, Any]:
    """What a draft says, the files by their bytes."""
    files = {
        str(path.relative_to(draft.root)): path.read_bytes()
        for path in draft.root.rglob("*")
        if path.is_file()
    }
    return {"artifacts": draft.artifacts, "fields": draft.fields, "files": files}


def test_a_finished_step_is_not_run_again(run: Any, ran: list[str], tmp_path: Path) -> None:
    cache = StepCache(tmp_path / "cache")
    value = {"steps": [FIXED, {**FP16, "input": "fixed"}, {**INT8, "input": "fixed"}, ORT]}
    first = run(value, cache)
    assert ran_steps(ran) == ["fixed", "fp16", "int8", "ort"]
    again = run(value, cache)
    assert ran_steps(ran) == []
    assert document(again) == document(first) == document(run(value))


def test_a_changed_step_runs_again_and_what_comes_after_and_nothing_else(
    run: Any, ran: list[str], tmp_path: Path
) -> None:
    cache = StepCache(tmp_path / "cache")
    run({"steps": [FIXED, {**FP16, "input": "fixed"}, {**INT8, "input": "fixed"}]}, cache)
    last = {**INT8, "input": "fixed", "params": {"per_channel": False}}
    changed = {"steps": [FIXED, {**FP16, "input": "fixed"}, last]}
    draft = run(changed, cache)
    assert ran_steps(ran) == ["int8"]
    assert document(draft) == document(run(changed))
    first = {**FIXED, "params": {"dim_param": ["batch"], "dim_value": [5]}}
    run({"steps": [first, {**FP16, "input": "fixed"}]}, cache)
    assert ran_steps(ran) == ["fixed", "fp16"]


def test_a_step_is_known_under_another_name(run: Any, ran: list[str], tmp_path: Path) -> None:
    cache = StepCache(tmp_path / "cache")
    run({"steps": [INT8], "outputs": [{"step": "int8", "path": "m.onnx"}]}, cache)
    draft = run(
        {"steps": [{**INT8, "name": "small"}], "outputs": [{"step": "small", "path": "m.onnx"}]}, cache
    )
    assert ran_steps(ran) == []
    assert "small" in by_step(draft)


@pytest.mark.parametrize("what", ["source", "data", "tools"])
def test_other_bytes_or_tools_are_another_key(
    run: Any, ran: list[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = StepCache(tmp_path / "cache")
    run({"steps": [STATIC]}, cache)
    if what == "source":
        graph = onnx.load(home / "mlp.onnx")
        graph.graph.initializer[0].raw_data = graph.graph.initializer[0].raw_data[::-1]
        graph.graph.initializer[0].raw_data = np.ones((64, 32), np.float32).tobytes()
        onnx.save(graph, home / "mlp.onnx")
    elif what == "data":
        np.savez(home / "rows.npz", x=np.random.default_rng(2).normal(size=(4, 64)).astype(np.float32))
    else:
        monkeypatch.setattr(
            "onnxreg.converters.source.toolchain.tool_versions", lambda more: {"onnxruntime": "99"}
        )
    run({"steps": [STATIC]}, cache)
    assert ran_steps(ran) == ["static"]


def test_a_graph_that_is_no_better_than_chance_needs_a_limit_of_the_users_own(
    run: Any, home: Path, tmp_path: Path
) -> None:
    """Calibrated on one row of ones: every range is wrong."""
    np.savez(home / "rows.npz", x=np.ones((1, 64), np.float32))
    cache = StepCache(tmp_path / "cache")
    published = {"steps": [STATIC, {"name": "io", "pass": "MobileSafeRewrite", "input": "static"}]}
    for _ in range(2):
        with pytest.raises(ConversionError):
            run(published, cache)
        draft = run({**published, "checks": [{"metric": "min_cosine", "min": 0}]}, cache)
        assert checks(artifacts(draft)["io.onnx"])["min_cosine"]["verdict"] == "pass"
    unpublished = [{"name": "original", "pass": "Original"}, STATIC]
    with pytest.raises(ConversionError):  # a step that is kept without the net is not taken with it
        run({"steps": unpublished, "outputs": [{"step": "original"}]}, cache)


def test_a_stricter_limit_leaves_the_net_where_it_is(run: Any, home: Path) -> None:
    """A bias alone gives the constant outputs of a wrong calibration a high cosine."""
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 64] x) => (float[batch, 4] y) '
        "{ m = MatMul(x, w) y = Add(m, b) }"
    )
    weight = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    for name, value in {"w": weight, "b": np.full(4, 25, np.float32)}.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onnx.save(graph, home / "biased.onnx")
    np.savez(home / "rows.npz", x=np.full((1, 64), 1e-3, np.float32))
    with pytest.raises(ConversionError, match="does not follow the input"):
        run({"steps": [STATIC], "checks": [LIMIT]}, source="biased.onnx")


def sequence_first(kind: int = TensorProto.FLOAT) -> Any:
    """A Transpose before a product: in float16 ONNX Runtime (1.31, x86-64) dies while it loads the graph."""
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 5, 64] x) => (float[5, batch, 32] y) {'
        f" h = Cast<to = {kind}>(x) t = Transpose<perm = [1, 0, 2]>(h) m = MatMul(t, w) y = Cast<to = 1>(m) }}"
    )
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(dtype), "w"))
    return graph


def test_float16_is_made_without_what_crashes(run: Any, home: Path) -> None:
    onnx.save(sequence_first(), home / "first.onnx")
    draft = run({"steps": [FP16]}, source="first.onnx")
    assert checks(artifacts(draft)["fp16.onnx"])["min_cosine"]["value"] > 0.999


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ONNX Runtime crashes on x86-64")
def test_a_crash_of_onnx_runtime_names_the_output_and_the_others_are_kept(
    run: Any, ran: list[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, ONNX Runtime may have fixed what `crashing_transposes` is for: remove that."""
    onnx.save(sequence_first(), home / "first.onnx")
    monkeypatch.setattr(float16, "crashing_transposes", lambda model: iter(()))
    cache = StepCache(tmp_path / "cache")
    with pytest.raises(ConversionError) as caught:
        run({"steps": [INT8, FP16]}, cache, source="first.onnx")
    assert "fp16.onnx" in caught.value.message
    assert "OnnxFloatToFloat16" in caught.value.message
    run({"steps": [INT8]}, cache, source="first.onnx")
    assert ran_steps(ran) == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ONNX Runtime crashes on x86-64")
def test_a_source_that_crashes_onnx_runtime_is_named(run: Any, home: Path) -> None:
    onnx.save(sequence_first(TensorProto.FLOAT16), home / "first.onnx")
    with pytest.raises(ConversionError) as caught:
        run({"steps": [INT8]}, source="first.onnx")
    assert "first.onnx" in caught.value.message


def test_a_damaged_result_is_made_again(run: Any, ran: list[str], tmp_path: Path) -> None:
    cache = StepCache(tmp_path / "cache")
    first = run({"steps": [INT8, FP16]}, cache)
    for place in cache.root.glob("steps/*"):
        if b"OnnxDynamicQuantization" in (place / ENTRY_FILE).read_bytes():
            (place / "int8.onnx").unlink()
            (place / "int8.onnx").write_bytes(b"something else")
    again = run({"steps": [INT8, FP16]}, cache)
    assert ran_steps(ran) == ["int8"]
    assert document(again) == document(first)


@pytest.mark.parametrize("when", ["it is loaded", "a step reads it"])
def test_a_source_that_changes_while_it_is_read_is_refused_and_not_cached(
    run: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
    from onnxreg.converters.tasks.onnx_file import OnnxFile

    model = onnx.load(home / "mlp.onnx")
    model.graph.initializer[0].raw_data = np.ones((64, 32), np.float32).tobytes()
    owner, name = (OnnxFile, "load") if when == "it is loaded" else (OnnxDynamicQuantization, "apply")
    real = getattr(owner, name)

    def changed_first(*given: Any) -> Any:
        onnx.save(model, home / "mlp.onnx")
        return real(*given)

    before, cache = (home / "mlp.onnx").read_bytes(), StepCache(tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, changed_first)
        with pytest.raises(InputError, match="changed while it was read"):
            run({"steps": [INT8]}, cache)
    (home / "mlp.onnx").write_bytes(before)
    kept, fresh = run({"steps": [INT8]}, cache), run({"steps": [INT8]})
    assert kept.root.joinpath("int8.onnx").read_bytes() == fresh.root.joinpath("int8.onnx").read_bytes()
