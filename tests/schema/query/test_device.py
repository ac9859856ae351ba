"""Device documents, releases, presets, sizes, builds and contrib operators. What they decide is in the vectors."""

import json
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processor import no_quadratic_time

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.units import SIZE_UNITS, parse_size, size
from onnxreg.schema.log.state import ArtifactSummary
from onnxreg.schema.manifest.operators import Need, read_build, read_operator_set
from onnxreg.schema.query import runtimes
from onnxreg.schema.query.device import PACKAGES, Device, preset, presets, provider
from onnxreg.schema.query.runtimes import FIRST_RELEASES, RELEASES, runtime

FULL = {
    "ort": "1.23.2",
    "name": "pixel",
    "build": "minimal",
    "operators": "ai.onnx;13;MatMul",
    "providers": ["CPU", "NNAPI"],
    "domains": ["com.acme"],
    "platform": "android",
    "abi": "arm64-v8a",
    "ram": "2GB",
    "free_space": 500,
    "locale": "de-DE",
}


def test_every_key_is_read_and_written():
    device = Device.read(FULL)
    assert device.to_json() == {**FULL, "ram": 2_000_000_000}
    assert Device.read(device.to_json()) == device


def test_defaults():
    device = Device.read({"ort": "1.23"})
    assert (device.build, device.providers, device.ram or device.minimal_build) == ("full", ("CPU",), None)
    assert device.to_json() == {"ort": "1.23", "build": "full", "providers": ["CPU"]}


MALFORMED = """
[] | not an object |
{} | a device is malformed: `ort` is missing |
{"ort": "1.23", "rams": 5} | a device has no 'rams' | did you mean ram?
{"ort": "1.23", "colour": 5} | a device has no 'colour' | its keys are
{"ort": "1.23", "ram": "5 GB"} | ram: not a size | 30MB
{"ort": "1.23", "ram": "5Gb"} | ram: not a size | GB
{"ort": "1.23", "providers": [1]} | providers[0]: expected text |
{"ort": 1.23} | ort: expected text, got a number |
{"ort": "1.9.0"} | older than 1.15 |
{"ort": "1.23;"} | not a release | 1.23.2
{"ort": "1.23", "build": "reduced"} | build is 'reduced' | full or minimal
{"ort": "1.23", "build": "minimal"} | a minimal build has only some operators | operators
{"ort": "1.23", "operators": "a;1;B"} | operators belongs to a minimal build | minimal
{"ort": "1.23", "build": "minimal", "operators": "ai.onnx;13;Add\\nnonsense"} | line 2 of the operator config |
"""


@pytest.mark.parametrize("row", MALFORMED.strip().splitlines())
def test_a_malformed_device_is_named(row):
    value, message, hint = map(str.strip, row.split("|"))
    with pytest.raises(InputError) as caught:
        Device.read(json.loads(value))
    assert message in caught.value.message and hint in caught.value.hint


def test_an_operator_set_is_read_only_when_everything_else_is_met():
    asked: list[Digest] = []

    def sets(digest: Digest) -> tuple[Need, ...]:
        asked.append(digest)
        return (Need("ai.onnx", "MatMul", 13),)

    device = Device.read({"ort": "1.23", "build": "minimal", "operators": "ai.onnx;13;MatMul"})
    operators = Digest.of(b"set")

    def code(**more: Any) -> str | None:
        fields = {"opset": 18, "ort_format": 6, "operators": operators, **more}
        artifact = ArtifactSummary("ort", "float32", "m.ort", Digest.of(b"m"), 5, "unknown", **fields)
        return next((miss.code for miss in requirements(artifact, 5)), None)

    requirements = device.requirements(sets)
    assert (code(opset=30), code(ort_format=7), code(operators=None)) == ("opset", "ort-format", "operators")
    assert asked == []
    assert (code(), code()) == (None, None)
    assert asked == [operators]


@pytest.mark.parametrize(
    ("release", "known"), [("1.16", (1, 16)), ("1.20.1", (1, 20)), ("1.99.9", (1, 31)), ("3.0", (1, 31))]
)
def test_a_release_is_found_by_its_numbers(release, known):
    assert runtime(release) is RELEASES[known]


def test_newer_releases_load_no_less():
    known = [RELEASES[number] for number in sorted(RELEASES)]
    for older, newer in pairwise(known):
        assert older.ort_format <= newer.ort_format
        assert older.opset <= newer.opset and older.ir <= newer.ir


def test_presets_are_devices_with_a_source():
    known = presets()
    assert {name.rpartition("-")[0] for name in known} == {package.name for package in PACKAGES}
    for name, (device, source) in known.items():
        assert source
        assert Device.read(device.to_json()) == preset(name) == device
    assert preset("ort-android-1.23").providers == ("CPU", "NNAPI", "XNNPACK")


def test_an_unknown_preset_has_near_misses():
    with pytest.raises(InputError) as caught:
        preset("ort-androit-1.23")
    assert "ort-android-1.23" in caught.value.hint
    with pytest.raises(InputError) as caught:
        preset("@@@")
    assert "reg builtin devices" in caught.value.hint


def test_names_of_providers():
    assert provider("NnapiExecutionProvider") == provider("NNAPI") == "nnapi"
    assert provider("WASM") == provider("CPUExecutionProvider") == "cpu"


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("30MB", 30_000_000), ("1.5kB", 1500), ("0.5KiB", 512), ("7B", 7), ("9" * 15, 10**15 - 1)],
)
def test_sizes(text, count):
    assert parse_size(text) == size(text) == size(count) == count


NO_SIZES = (" 1", "MB", "-1", "1e3", "1,5MB", "1mb", "1.MB", ".5MB", "2KB", "0.3B", "٣MB", "1.0000000000", "")


@pytest.mark.parametrize("text", [*NO_SIZES, "1 MB", "1" * 16])
def test_no_sizes(text):
    with pytest.raises(InputError):
        parse_size(text)


@given(st.integers(0, 999_999), st.sampled_from(sorted(SIZE_UNITS)))
def test_a_size_is_its_number_times_its_unit(number, unit):
    if number * SIZE_UNITS[unit] < 2**53:
        assert parse_size(f"{number}{unit}") == parse_size(f"{number}.000{unit}") == number * SIZE_UNITS[unit]


@pytest.mark.parametrize(
    "data", [b"{}", b'[{"domain":"a"}]', b'[{"domain":"a","name":"B","opset":-1}]', b"[", b""]
)
def test_a_malformed_operator_set(data):
    with pytest.raises(InputError):
        read_operator_set(data)


_NAMES = st.sampled_from(["Add", "MatMul", "Gather", "Cast"])
_TYPES = st.dictionaries(
    st.sampled_from("01"), st.frozensets(st.sampled_from(["float", "int64_t"]), min_size=1), max_size=2
)
_NEEDS = st.lists(
    st.builds(Need, st.just("ai.onnx"), _NAMES, st.integers(11, 14), _TYPES, _TYPES), max_size=6
)


def config_of(needs: list[Need]) -> str:
    """A config with all that is needed. Types belong to a name, so they are joined over its opsets."""
    joined: dict[str, dict[str, dict[str, set[str]]]] = {}
    for need in needs:
        sides = joined.setdefault(need.name, {"inputs": {}, "outputs": {}})
        for side, types in (("inputs", need.inputs), ("outputs", need.outputs)):
            for position, names in types.items():
                sides[side].setdefault(position, set()).update(names)
    lines = []
    for need in needs:
        everywhere = [each for each in needs if each.name == need.name]
        sides = {
            side: {
                position: sorted(names)
                for position, names in joined[need.name][side].items()
                if all(position in getattr(each, side) for each in everywhere)
            }
            for side in ("inputs", "outputs")
        }
        lines.append(f"ai.onnx;{need.opset};{need.name}{json.dumps(sides)}")
    return "\n".join(lines)


@given(_NEEDS)
def test_a_build_contains_the_needs_of_its_configuration(needs):
    assert read_build(config_of(needs)).shortfall(needs) is None


@given(_NEEDS, _NEEDS)
def test_a_build_lacks_exactly_the_operators_it_was_not_made_for(needs, others):
    build = read_build("\n".join(f"ai.onnx;{need.opset};{need.name}" for need in others))
    missing = {(need.opset, need.name) for need in needs} - {(need.opset, need.name) for need in others}
    found = build.shortfall(needs)
    assert (found is None) == (not missing)
    assert found is None or found[0] == "operators"


@given(st.text(alphabet="ai.onx;13AdMt{}\"':,[]!#\n gobly_", max_size=60))
def test_no_text_is_more_than_an_input_error(text):
    with suppress(InputError):
        read_build(text)


def test_many_types_of_one_operator_take_no_cubic_time():
    config = 'ai.onnx;11;OneHot{"custom": [["float", "int64_t", "double"]]}'
    types = frozenset(f"t{number}" for number in range(300))
    need = Need("ai.onnx", "OneHot", 11, dict.fromkeys(("0", "1", "2"), types))
    with no_quadratic_time():
        found = read_build(config).shortfall([need])
    assert found is not None and "with t0, t0, t0" in found[1]


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", ["web-client/contrib.mjs", "jvm-client/src/org/onnxreg/client/Contrib.java"])
def test_a_client_has_the_same_table(path):
    text = (ROOT / "examples" / path).read_text("utf-8")
    rows = re.findall(r"""^ +['"](\d+): (.+)['"],$""", text, re.MULTILINE)
    found = {}
    for minor, needs in rows:
        for operator, _, features in (need.partition(" ") for need in needs.split(", ")):
            found |= {f"{operator} {feature}".strip(): (1, int(minor)) for feature in features.split("|")}
    assert found == FIRST_RELEASES


def test_every_release_is_one_that_the_other_table_has():
    assert set(FIRST_RELEASES.values()) <= RELEASES.keys()


def test_a_feature_is_newer_than_its_operator():
    for need, release in FIRST_RELEASES.items():
        operator = need.split()[0]
        assert operator == need or release > FIRST_RELEASES.get(operator, (1, 15)), need


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("1.23", ""),
        ("1.23.2", ""),
        ("2.0", ""),
        ("1.22.1", "needs MatMulNBits bits=8, ONNX Runtime 1.22.1 lacks it, 1.23 has it"),
        ("1.15", "needs MatMulNBits, ONNX Runtime 1.15 lacks it, 1.16 has it"),
    ],
)
def test_the_first_need_that_a_release_lacks_is_named(release, words):
    assert runtimes.problem(["MatMulNBits", "MatMulNBits bits=8"], release) == words


def test_an_operator_of_no_release_is_named():
    words = "needs Imaginary, which no release of ONNX Runtime known here runs on the CPU"
    assert runtimes.problem(["Imaginary"], "1.31") == words
