"""The newest opset, ONNX IR version and ORT format that each release of ONNX Runtime loads.

Measured with the wheels of 1.15.1, 1.16.3, 1.17.3, 1.18.1, 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1, 1.27.0,
1.29.0 and 1.31.1 from PyPI, by loading a graph of one `Relu` under rising numbers; the releases between two that agree
cannot differ from them. An .ort file's IR version is not looked at, its opset is. Format 5 came with 1.13 and 6 with
1.16 (https://onnxruntime.ai/docs/performance/model-optimizations/ort-format-models.html, microsoft/onnxruntime#20670);
files older than 5 load with limits, and count as too old here.
"""

import re
from typing import NamedTuple

from onnxreg.schema.core.errors import InputError

OLDEST_FORMAT = 5


class Runtime(NamedTuple):
    """The newest versions that one release loads; older ones load too (ORT formats from `OLDEST_FORMAT` on)."""

    opset: int
    ir: int
    ort_format: int


RELEASES = {
    (1, 15): Runtime(19, 9, 5),
    (1, 16): Runtime(19, 9, 6),
    (1, 17): Runtime(20, 9, 6),
    (1, 18): Runtime(21, 10, 6),
    (1, 19): Runtime(21, 10, 6),
    (1, 20): Runtime(21, 10, 6),
    (1, 21): Runtime(22, 10, 6),
    (1, 22): Runtime(22, 10, 6),
    (1, 23): Runtime(23, 11, 6),
    (1, 24): Runtime(25, 13, 6),
    **dict.fromkeys([(1, minor) for minor in range(25, 32)], Runtime(26, 13, 6)),
}
"""By major and minor number. A release newer than all of these counts as the newest: it loads what that one loads."""

_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")


def release_number(release: str) -> tuple[int, int]:
    """The major and minor number of a release such as `1.23.2`. InputError if it is not a release."""
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise InputError(f"not a release of ONNX Runtime: {release[:40]!r}", "write it as 1.23.2 or 1.23")
    return int(match[1]), int(match[2])


def runtime(release: str) -> Runtime:
    """The versions that a release such as `1.23.2` loads. InputError if it is not a release, or older than the table."""
    requested = release_number(release)
    older = [number for number in RELEASES if number <= requested]
    if not older:
        oldest = ".".join(map(str, min(RELEASES)))
        raise InputError(f"ONNX Runtime {release} is older than {oldest}, the oldest known here")
    return RELEASES[max(older)]
