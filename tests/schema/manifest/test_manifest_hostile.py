"""Documents that are refused, each with the path to the reason, and soon."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.processor import no_quadratic_time
from support.sampling import sampled

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Manifest

WRONG = r"""
format | /format | "openmed-mlx" | at format:
version 3 | /format_version | 3 | at format_version:
version 1 | /format_version | 1 | at format_version:
version as text | /format_version | "2" | at format_version:
version true | /format_version | true | at format_version:
name | /name | "../x" | at name: not a model name
name too long | /name | "LONG" | at name: not a model name
no artifacts | /artifacts | [] | at artifacts:
formats incomplete | /formats | ["onnx-android", "onnx-int8"] | formats does not list
formats too many | /formats | ["onnx-android", "onnx-int8", "ort-android", "onnx"] | formats does
formats twice | /formats | ["onnx-android", "onnx-int8", "ort-android", "onnx-int8"] | formats does
format name | /artifacts/0/format | "Onnx Android" | at artifacts.0.format:
precision name | /artifacts/0/precision | "" | at artifacts.0.precision:
size negative | /artifacts/0/size | -1 | at artifacts.0.size:
size true | /files/0/size | true | at files.0.size:
size with a fraction | /files/0/size | 1.5 | at files.0.size:
size as text | /files/0/size | "1" | at files.0.size:
digest | /files/0/digest | "sha256:CAPITALS" | at files.0.digest: not a digest: 'sha256:AAA
digest of another kind | /files/0/digest | "md5:00000000000000000000000000000000" | at files.0.digest: not a digest: 'md5:00
path climbs | /artifacts/0/path | "../model.onnx" | at artifacts.0.path: path is absolute
path of a sidecar | /artifacts/1/files/0/path | "/etc/x" | at artifacts.1.files.0.path:
path of the labels | /label_map_path | "C:/x" | at label_map_path:
path of a tokenizer file | /tokenizer/files | ["tokenizer.json", ".."] | at tokenizer.files.1:
path is the manifest's | /files/0/path | "OpenMed-ONNX.json" | collide
path in the manifest | /files/0/path | "openmed-onnx.json/x" | both a file and a directory
path twice, other bytes | /files/0/path | "model.onnx" | names two different files
path twice after folding | /files/0/path | "MODEL.onnx" | collide
parent no artifact | /artifacts/1/parent | "SHA 77" | artifacts.1.parent is not an artifact
parent itself | /artifacts/1/parent | "SHA 2" | each other's parents
parents in a circle | /artifacts/0/parent | "SHA 3" | each other's parents
evidence about other bytes | /artifacts/1/certification/evidence/artifact | "SHA 1" | at artifacts.1: certification.evidence.artifact is about other bytes
certified without evidence | /artifacts/1/certification/evidence | null | at artifacts.1.certification: certified without evidence of the artifact
certified without parent | /artifacts/1/certification/evidence/parent | null | at artifacts.1.certification: certified without evidence of the parent
certified without suite | /artifacts/1/certification/evidence/suite | null | at artifacts.1.certification: certified without evidence of the suite
check above its limit that passes | /artifacts/1/checks/0 | {"name": "quant_recall_delta", "metric": "recall", "value": 0.4, "limit": 0.005, "verdict": "pass"} | at artifacts.1.checks.0: quant_recall_delta is 0.4, its limit 0.005
check that failed | /artifacts/1/checks/0 | {"name": "quant_recall_delta", "metric": "recall", "value": 0.001, "verdict": "fail"} | at artifacts.1: certified, and the verdict
state | /artifacts/1/certification/state | "great" | at artifacts.1.certification.state:
verdict | /artifacts/1/checks/0/verdict | "ok" | at artifacts.1.checks.0.verdict:
samples negative | /artifacts/1/checks/0/samples | -1 | at artifacts.1.checks.0.samples:
value as text | /artifacts/1/checks/0/value | "0.9" | at artifacts.1.checks.0.value:
value true | /artifacts/1/checks/0/value | true | at artifacts.1.checks.0.value:
interval reversed | /artifacts/1/checks/0/interval | [2, 1] | at artifacts.1.checks.0:
interval of three | /artifacts/1/checks/0/interval | [1, 2, 3] | checks.0.interval
more quantized than there is | /artifacts/1/quantization/measured/weights_quantized | 7 | at artifacts.1.quantization.measured: more is quantized
static without value | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "static"} | at artifacts.0.metadata.inputs.0.shape.0: a static axis has a value
dynamic with value | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "dynamic", "value": 1} | at artifacts.0.metadata.inputs.0.shape.0: a static axis has a value
dimension negative | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "static", "value": -1} | at artifacts.0.metadata.inputs.0.shape.0.value:
axes and shape | /artifacts/0/metadata/inputs/0/axes | ["batch"] | 1 axes are named
opset import true | /artifacts/0/opset_imports/ai.onnx | true | artifacts.0.opset_imports
operator types | /artifacts/0/operators/0/inputs | {"0": "float"} | at artifacts.0.operators.0.inputs.0:
tool version | /recipe/tools/onnx | 1 | at recipe.tools.onnx:
long text | /license | "LONG" | at license:
labels | /labels | ["O", 1] | at labels.1:
"""
"""The case, the pointer to a field of a whole manifest, its new value, and a part of the reason."""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_value_is_refused(line: str, replaced: Callable[[str, Any], dict[str, Any]]) -> None:
    _, pointer, text, reason = line.split(" | ")
    text = re.sub(r"SHA (\d+)", lambda match: f"sha256:{int(match[1]):064x}", text)
    value = json.loads(text.replace("CAPITALS", "A" * 64).replace("LONG", "x" * 4097))
    with pytest.raises(InputError) as caught:
        Manifest.from_json(replaced(pointer, value), "openmed-onnx.json")
    assert caught.value.message.startswith("openmed-onnx.json is not valid")
    assert reason in caught.value.message


HEAD = (
    b'{"format":"openmed-onnx","format_version":2,"name":"a","formats":["onnx"],"artifacts":'
    b'[{"format":"onnx","path":"m","precision":"int8","digest":"sha256:' + b"0" * 64 + b'","size":1}],'
)
LARGE: dict[str, Callable[[], bytes]] = {
    "labels of a wrong type": lambda: b'"labels":[' + b"0," * 900_000 + b"0]}",
    "files that are empty": lambda: b'"files":[' + b"{}," * 90_000 + b"{}]}",
    "too many files": lambda: b'"files":[' + b"{}," * 900_000 + b"{}]}",
    "a text of 15 MB": lambda: b'"license":"' + b"x" * 15_000_000 + b'"}',
    "a path of 15 MB": lambda: b'"config_path":"' + b"../" * 5_000_000 + b'"}',
    "30,000 files, each twice": lambda: (
        b'"files":['
        + b",".join(
            b'{"role":"x","path":"%s%05d","digest":"sha256:%064x","size":1}' % (b"d/" * 30, i // 2, i)
            for i in range(60_000)
        )
        + b"]}"
    ),
}


@pytest.mark.parametrize("tail", sampled(LARGE.values(), 2), ids=LARGE.keys())
def test_large_hostile_document_is_refused_at_once(tail: Callable[[], bytes]) -> None:
    data = HEAD + tail()
    with no_quadratic_time(), pytest.raises(InputError) as caught:
        Manifest.decode(data)
    assert len(caught.value.message) < 500
