"""Measure the first release of ONNX Runtime that runs each contrib operator on the CPU.

    PYTHONPATH=tests python -m support.contrib.measure DIRECTORY

DIRECTORY has one folder for each release (`pip install --no-deps --target DIRECTORY/1.23.2 onnxruntime==1.23.2`), and
`shared` with the libraries that they need (numpy 1.26, coloredlogs, flatbuffers, packaging, protobuf).

A release lists its operators with their attributes, inputs and element types (1.15 does not: the table that is there says
what it has). Beyond that, the graphs of `graphs.py` run in each release, and must give the numbers of the newest. Writes
the record `measured.json` beside this file, and from both the tables of the library and of the web client.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnxreg.converters.onnx.onnx_graph import load_onnx, operator_nodes
from onnxreg.converters.onnx.tensors import ELEMENTS
from onnxreg.schema.query.runtimes import DOMAIN
from support.contrib.graphs import cases

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RECORD = HERE / "measured.json"
TABLE = ROOT / "schema/query/contrib_releases.json"
CLIENT_TABLES = (
    (ROOT / "examples/web-client/contrib.mjs", "ROWS = [\n", "  '{}',\n", "]\n"),
    (
        ROOT / "examples/jvm-client/src/org/onnxreg/client/Contrib.java",
        "ROWS = {\n",
        '        "{}",\n',
        "    };\n",
    ),
)
"""The source of each client: where its rows begin, the form of a row, and what follows them."""
QUANTIZERS = ("DequantizeLinear", "QuantizeLinear")
"""Operators of ONNX that got kernels for some element types later than their opset."""
PLAIN = frozenset({"float", "int32_t", "int8_t", "uint8_t"})
"""Element types that they always had."""
CAST = "tensor(float16)"
"""The type that ONNX Runtime casts if a kernel lacks it, but not in ORT format: casts are in the file."""
CPP = {
    f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": item.cpp for number, item in ELEMENTS.items()
}
MAX_INPUTS = 40
REVEALED = {
    "2-bit weights": "MatMulNBits bits=2",
    "4-bit weights, accuracy level 4, float16": "MatMulNBits MLFloat16",
    "4-bit weights, zero points": "MatMulNBits inputs=4",
    "8-bit weights": "MatMulNBits bits=8",
}
"""Graphs that older releases refuse or compute wrongly although they list all of it, and the feature that does it."""

Release = tuple[int, int]


def write_graphs(directory: Path) -> None:
    for name, model, feeds in cases():
        onnx.save(model, directory / f"{name}.onnx")
        np.savez(directory / f"{name}.npz", **feeds)


def write_ort_graphs(directory: Path) -> None:
    """The same graphs in ORT format, beside them, as the installed release saves them."""
    for path in directory.glob("*.onnx"):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(path.with_suffix(".ort"))
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def probe(release: Path, graphs: Path, suffix: str = ".onnx") -> dict[str, Any]:
    """The answer of the release in a folder."""
    search = os.pathsep.join([str(release), str(release.parent / "shared")])
    done = subprocess.run(
        [sys.executable, str(HERE / "probe.py"), str(graphs), suffix],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        check=True,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def number(release: str) -> Release:
    major, minor = release.split(".")[:2]
    return int(major), int(minor)


def refusals(answers: Mapping[Release, Any]) -> dict[str, list[str]]:
    """For each graph the releases that refuse it, or get other numbers than the newest."""
    newest = answers[max(answers)]["runs"]
    return {
        name: [
            answer["release"]
            for _, answer in sorted(answers.items())
            if is_other(answer["runs"][name], result)
        ]
        for name, result in newest.items()
    }


def is_other(result: Any, newest: Any) -> bool:
    """True if a graph did not run, or got other numbers than in the newest release."""
    return isinstance(result, str) or not np.allclose(result, newest, atol=2e-2, rtol=2e-2)


def first_after(refused: list[str], measured: list[str]) -> Release:
    """The first release after all that refuse a graph."""
    return number(measured[measured.index(refused[-1]) + 1 if refused else 0])


def listed(operators: Mapping[str, Any]) -> Iterator[str]:
    """What a release says of itself, in the words of the table."""
    for qualified, entry in operators.items():
        domain, _, name = qualified.partition(":")
        types = [CPP[kind] for kind in entry["types"] if kind in CPP and kind != CAST]
        if domain in ("", DOMAIN) and CAST in entry["types"]:
            yield f"{name if domain else f'ai.onnx:{name}'} kernel={CPP[CAST]}"
        if domain == DOMAIN:
            yield name
            yield from (f"{name} {attribute}" for attribute in entry["attributes"])
            yield from (f"{name} inputs={count}" for count in range(min(entry["inputs"], MAX_INPUTS) + 1))
            yield from (f"{name} {kind}" for kind in types)
        elif not domain and name in QUANTIZERS:
            yield from (f"ai.onnx:{name} {kind}" for kind in types if kind not in PLAIN)


def contrib_of(path: Path) -> set[str]:
    """The contrib operators of a graph."""
    nodes = operator_nodes(load_onnx(path), path)
    return {node.op_type for node in nodes if node.domain == DOMAIN}


def make_table(
    graphs: Path, answers: Mapping[Release, Any], record: Mapping[str, list[str]]
) -> dict[str, Release]:
    """Each operator with its first release, and each feature that came later than its operator."""
    measured = [answer["release"] for _, answer in sorted(answers.items())]
    first = {name: first_after(refused, measured) for name, refused in record.items()}
    ran: dict[str, Release] = {}
    for name, release in first.items():
        for operator in contrib_of(graphs / f"{name}.onnx"):
            ran[operator] = min(ran.get(operator, release), release)
    says = {
        release: set(listed(answer["operators"]))
        for release, answer in answers.items()
        if answer["operators"]
    }
    oldest = min(says)
    recorded = {word: tuple(first) for word, first in json.loads(TABLE.read_text()).items()}
    for release in answers.keys() - says.keys():
        says[release] = {
            word
            for word in says[oldest]
            if recorded.get(word, recorded.get(word.split()[0], oldest)) <= release
        }
    table = {
        word: min(release for release in says if word in says[release])
        for word in set().union(*says.values())
    }
    later = set(answers[oldest]["operators"])
    table = {
        word: release
        for word, release in table.items()
        if not (word.startswith("ai.onnx:") and " kernel=" in word)
        or (release > oldest and f":{word[len('ai.onnx:') :].split()[0]}" in later)
    }
    table |= ran
    table |= {word: first[name] for name, word in REVEALED.items()}
    table["ai.onnx:SimplifiedLayerNormalization"] = first["SimplifiedLayerNormalization"]
    oldest = min(answers)
    return {
        word: table[word]
        for word in sorted(table)
        if table[word] > (table.get(word.split()[0], oldest) if " " in word else (0, 0))
    }


def write_table(table: Mapping[str, Release]) -> None:
    rows = ",\n".join(f'  "{word}": [{release[0]}, {release[1]}]' for word, release in table.items())
    TABLE.write_text(f"{{\n{rows}\n}}\n")
    for path, start, form, end in CLIENT_TABLES:
        before, _, rest = path.read_text().partition(start)
        lines = "".join(form.format(row) for row in client_rows(table))
        path.write_text(f"{before}{start}{lines}{rest[rest.index(end) :]}")


def client_rows(table: Mapping[str, Release]) -> Iterator[str]:
    """The table as the clients have it: a minor release of ONNX Runtime 1, and what it is the first to have, features of an
    operator joined by `|`.
    """
    for release in sorted(set(table.values())):
        features: dict[str, list[str]] = {}
        for word, first in table.items():
            operator, _, feature = word.partition(" ")
            if first == release:
                features.setdefault(operator, []).append(feature)
        words = ", ".join(
            f"{operator}\0{'|'.join(named)}".rstrip("\0") for operator, named in features.items()
        )
        for line in textwrap.wrap(words, 86, break_long_words=False, break_on_hyphens=False):
            yield f"{release[1]}: {line.replace(chr(0), ' ').removesuffix(',')}"


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        graphs = Path(name)
        write_graphs(graphs)
        releases = sorted(path for path in folder.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name))
        answers = {number(path.name): probe(path, graphs) for path in releases}
        measured = [answer["release"] for _, answer in sorted(answers.items())]
        record = refusals(answers)
        RECORD.write_text(json.dumps({"releases": measured, "refused": record}) + "\n")
        write_table(make_table(graphs, answers, record))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
