"""Measured speed of a version's artifacts on one machine: a statement about the version, not a part of it.

A latency is of the machine and the moment, and a manifest holds nothing of either. So it is attested after publication: a
blob and an event of the log, which travel with the version. It is not an evaluation: no gate and no certificate looks at it.

    {"format": "onnxreg-benchmark", "format_version": 1, "cpu", "isa", "threads", "runtime", "warm_up", "runs",
     "artifacts": [{"artifact": digest, "path", "checks": [check]}]}

`checks` are those of a manifest: `latency of batch 8`, metric `median_ms` or `p95_ms`, samples the timed runs.
"""

from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, RelPath, Text
from onnxreg.schema.manifest.parts import Check


class TimedArtifact(Document):
    """The latency of one artifact, in milliseconds for each run of a whole batch."""

    artifact: Digest
    path: RelPath
    checks: Items[Check]


class BenchmarkDocument(Document):
    """The measured latencies of a version's artifacts on one machine.

    `cpu` is the processor's model, `isa` its widest instruction set, `runtime` name and version, `warm_up`
    the number of runs of each batch before the `runs` that were timed.
    """

    format: Literal["onnxreg-benchmark"]
    format_version: First
    cpu: Text
    isa: Text
    threads: Annotated[Count, Field(gt=0)]
    runtime: Text
    warm_up: Count
    runs: Annotated[Count, Field(gt=0)]
    artifacts: Annotated[Items[TimedArtifact], Field(min_length=1)]
