"""The needs of graphs with contrib operators, and the table of releases: what was measured, and what a release does."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.contrib import measure, probe

from onnxreg.converters.onnx.facts import GraphFacts, inspect_onnx
from onnxreg.schema.query import contrib
from onnxreg.schema.query.contrib_releases import FIRST_RELEASES

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
    return directory


@pytest.fixture(scope="module")
def facts(graphs: Path) -> Mapping[str, GraphFacts]:
    return {path.stem: inspect_onnx(path) for path in graphs.glob("*.onnx")}


def test_the_graphs_are_those_that_were_measured(facts: Mapping[str, GraphFacts]) -> None:
    assert facts.keys() == RECORD["refused"].keys()
    assert [release.rpartition(".")[0] for release in RECORD["releases"]] == [f"1.{n}" for n in range(15, 32)]


@pytest.mark.parametrize("name", RECORD["refused"])
def test_the_first_release_of_a_graph_is_the_measured_one(facts: Mapping[str, GraphFacts], name: str) -> None:
    measured = measure.first_after(RECORD["refused"][name], RECORD["releases"])
    stated = max((FIRST_RELEASES[need] for need in facts[name].contrib), default=(1, 15))
    assert stated == CAUTIOUS.get(name, measured)
    assert stated >= measured


@pytest.mark.parametrize("name", GAP)
def test_a_release_with_wrong_results_counts_as_one_that_refuses(name: str) -> None:
    refused = RECORD["refused"][name]
    older = RECORD["releases"][RECORD["releases"].index(GAP[name]) - 1]
    assert refused[-1] == GAP[name] and older not in refused


@pytest.mark.parametrize(
    ("name", "needs", "precision"),
    [
        ("8-bit weights", ["MatMulNBits", "MatMulNBits bits=8"], "int8-weights"),
        (
            "8-bit weights, accuracy level 4",
            ["MatMulNBits", "MatMulNBits accuracy_level", "MatMulNBits bits=8"],
            "int8",
        ),
        ("4-bit weights", ["MatMulNBits"], "int4"),
        ("4-bit weights, bias", ["MatMulNBits", "MatMulNBits inputs=6"], "int4"),
        ("GroupQueryAttention, softcap", ["GroupQueryAttention", "GroupQueryAttention softcap"], "float32"),
        ("DequantizeLinear, int4", ["ai.onnx:DequantizeLinear Int4x2"], "float32"),
        ("DequantizeLinear, int8", [], "float32"),
    ],
)
def test_needs_of_a_graph(
    facts: Mapping[str, GraphFacts], name: str, needs: list[str], precision: str
) -> None:
    assert (list(facts[name].contrib), facts[name].precision) == (needs, precision)
    assert facts[name].fields().get("contrib", []) == needs


def test_the_installed_release_runs_every_graph(graphs: Path) -> None:
    results = {path.stem: probe.run(path) for path in graphs.glob("*.onnx")}
    assert {name: result for name, result in results.items() if isinstance(result, str)} == {}


def test_an_operator_that_is_not_in_the_table_is_a_need() -> None:
    assert list(contrib.needs("com.microsoft", "Imaginary", 1, ["float"], {"bits": 8})) == ["Imaginary"]
    assert list(contrib.needs("com.acme", "MatMulNBits", 1, ["float"], {"bits": 8})) == []


@pytest.mark.large
@pytest.mark.parametrize("release", ["1.16.3", "1.17.3", "1.22.1"])
def test_an_old_release_runs_what_resolve_offers_it(
    release: str, tmp_path: Path, graphs: Path, facts: Mapping[str, GraphFacts]
) -> None:
    for folder, packages in ((release, ["--no-deps", f"onnxruntime=={release}"]), ("shared", SHARED)):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / folder)]
        subprocess.run([*command, *packages], check=True, capture_output=True)
    answer = measure.probe(tmp_path / release, graphs)
    assert answer["release"] == release
    newest = {path.stem: probe.run(path) for path in graphs.glob("*.onnx")}
    refused = {name for name in newest if measure.is_other(answer["runs"][name], newest[name])}
    rejected = {name for name in newest if contrib.problem(facts[name].contrib, release)}
    assert refused <= rejected
    assert rejected - refused <= CAUTIOUS.keys() | GAP.keys()
