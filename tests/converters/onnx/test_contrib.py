"""The needs of graphs with contrib operators, and the table of releases: what was measured, and what a release does."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.contrib import measure, probe

from onnxreg.converters.onnx.facts import GraphFacts, inspect_file
from onnxreg.schema.query import runtimes
from onnxreg.schema.query.runtimes import FIRST_RELEASES, runtime

RECORD: dict[str, Any] = json.loads(measure.RECORD.read_text("utf-8"))
CAUTIOUS = {
    "4-bit weights, float16": (1, 20),
    "8-bit weights, accuracy level 4": (1, 23),
    "8-bit weights, accuracy level 4, float16": (1, 23),
}
"""Graphs that an older release runs too: the table counts them with others that it does not run."""
GAP = {"4-bit weights, accuracy level 4, float16": "1.19.2"}
"""Graphs that a release computes wrongly, but releases before it do not: the table has those after it."""
SHARED = ("numpy==1.26.4", "coloredlogs", "flatbuffers", "packaging", "protobuf")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("graphs")
    measure.write_graphs(directory)
    measure.write_ort_graphs(directory)
    return directory


@pytest.fixture(scope="module")
def facts(graphs: Path) -> Mapping[str, GraphFacts]:
    return {path.stem: inspect_file(path) for path in graphs.glob("*.onnx")}


def test_the_graphs_are_those_that_were_measured(facts):
    assert facts.keys() == RECORD["refused"].keys()
    assert [release.rpartition(".")[0] for release in RECORD["releases"]] == [f"1.{n}" for n in range(15, 32)]


@pytest.mark.parametrize("name", RECORD["refused"])
def test_the_first_release_of_a_graph_is_the_measured_one(facts, name):
    """A release with wrong results counts as one that refuses."""
    refused, releases = RECORD["refused"][name], RECORD["releases"]
    measured = measure.first_after(refused, releases)
    stated = max((FIRST_RELEASES[need] for need in facts[name].contrib), default=(1, 15))
    assert stated == CAUTIOUS.get(name, measured)
    assert stated >= measured
    if name in GAP:
        older = releases[releases.index(GAP[name]) - 1]
        assert refused[-1] == GAP[name] and older not in refused


BITS, LEVEL, HALF = "MatMulNBits bits=8", "MatMulNBits accuracy_level", "kernel=MLFloat16"


@pytest.mark.parametrize(
    ("name", "needs", "precision"),
    [
        ("8-bit weights", ["MatMulNBits", BITS], "int8-weights"),
        ("8-bit weights, accuracy level 4", ["MatMulNBits", LEVEL, BITS], "int8"),
        ("4-bit weights", ["MatMulNBits"], "int4"),
        ("4-bit weights, bias", ["MatMulNBits", "MatMulNBits inputs=6"], "int4"),
        ("GroupQueryAttention, softcap", ["GroupQueryAttention", "GroupQueryAttention softcap"], "float32"),
        ("DequantizeLinear, int4", ["ai.onnx:DequantizeLinear Int4x2"], "float32"),
        ("DequantizeLinear, int8", [], "float32"),
    ],
)
def test_needs_of_a_graph(facts, name, needs, precision):
    assert (list(facts[name].contrib), facts[name].precision) == (needs, precision)
    assert facts[name].fields().get("contrib", []) == needs


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("BiasGelu", {"BiasGelu"}),
        ("SkipLayerNormalization, float16", {"SkipLayerNormalization", f"SkipLayerNormalization {HALF}"}),
        ("LayerNormalization, float16", {f"ai.onnx:LayerNormalization {HALF}"}),
        ("8-bit weights", {"MatMulNBits", LEVEL, BITS, "MatMulNBits weight_prepacked"}),
    ],
)
def test_needs_in_ort_format_have_the_defaults_that_the_file_states(graphs, name, needs):
    assert set(inspect_file(graphs / f"{name}.ort").contrib) == needs


def test_the_installed_release_runs_every_graph(graphs):
    results = {path.stem: probe.run(path) for path in graphs.glob("*.onnx")}
    assert {name: result for name, result in results.items() if isinstance(result, str)} == {}


def test_an_operator_that_is_not_in_the_table_is_a_need():
    use = runtimes.Use("com.microsoft", "Imaginary", 1, frozenset({"float"}), {"bits": 8}, False)
    assert runtimes.needs([use]) == ("Imaginary",)
    assert runtimes.needs([use._replace(domain="com.acme", name="MatMulNBits")]) == ()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Install a release from PyPI into a directory of its own."""
    directory = tmp_path_factory.mktemp("wheels")

    def install(folder: str, *packages: str) -> Path:
        if not (directory / folder).exists():
            target = ["--quiet", "--target", str(directory / folder)]
            command = [sys.executable, "-m", "pip", "install", *target, *packages]
            subprocess.run(command, check=True, capture_output=True)
        return directory / folder

    def release(number: str) -> Path:
        install("shared", *SHARED)
        return install(number, "--no-deps", f"onnxruntime=={number}")

    return release


OLD = ("1.16.3", "1.17.3", "1.22.1")


@pytest.mark.large
@pytest.mark.parametrize("suffix", [".onnx", ".ort"])
@pytest.mark.parametrize("release", OLD)
def test_an_old_release_runs_what_resolve_offers_it(release, suffix, wheels, graphs):
    """Of the graphs that the installed release runs, the table is too cautious about few."""
    answer = measure.probe(wheels(release), graphs, suffix)
    assert answer["release"] == release
    results = {path.stem: probe.run(path) for path in graphs.glob(f"*{suffix}")}
    newest = {name: result for name, result in results.items() if not isinstance(result, str)}
    assert len(newest) > 55
    for name, result in newest.items():
        needed = inspect_file(graphs / f"{name}{suffix}")
        problem = runtimes.problem(needed.contrib, release)
        is_other = measure.is_other(answer["runs"][name], result)
        offered = not problem and (suffix == ".onnx" or (needed.opset or 0) <= runtime(release).opset)
        assert not (offered and is_other), name
        assert suffix == ".ort" or not problem or is_other or name in CAUTIOUS.keys() | GAP.keys()
