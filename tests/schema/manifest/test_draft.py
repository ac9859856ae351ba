"""A draft becomes a manifest when its files are measured."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

SOURCE = Digest.of(b"source")
SUITE = Digest.of(b"suite")


def measured(*paths: str) -> dict[str, Descriptor]:
    return {path: Descriptor(Digest.of(path.encode()), len(path)) for path in paths}


def draft(verdict: Verdict | None = None, **fields: Any) -> Draft:
    return Draft(
        name="acme/pii",
        root=Path("workspace"),
        artifacts=(
            DraftArtifact("onnx", "float32", "model.onnx", (DraftFile("external-data", "model.onnx.data"),)),
            DraftArtifact(
                "onnx-int8", "int8", "int8.onnx", parent="model.onnx", verdict=verdict or Verdict("unknown")
            ),
        ),
        companions=(DraftFile("report", "report.json"), DraftFile("config", "config.json")),
        fields={"source": {"id": "acme/pii", "digest": str(SOURCE)}, **fields},
    )


PATHS = ("model.onnx", "model.onnx.data", "int8.onnx", "report.json", "config.json")


def test_paths_are_listed_once() -> None:
    assert sorted(draft().paths()) == sorted(PATHS)


def test_manifest_of_a_draft() -> None:
    verdict = Verdict("certified", "G4/point", ("below the limit",), SUITE, "report.json")
    manifest = draft(verdict, license="MIT").manifest(measured(*PATHS))
    fp32, int8 = manifest.artifacts
    assert manifest.formats == ("onnx", "onnx-int8")
    assert manifest.license == "MIT"
    assert int8.parent == fp32.digest == Digest.of(b"model.onnx")
    assert [entry.path for entry in manifest.all_files()] == list(PATHS)
    evidence = int8.certification.evidence
    assert evidence is not None
    assert (evidence.artifact, evidence.parent) == (int8.digest, SOURCE)
    assert (evidence.suite, evidence.report) == (SUITE, Digest.of(b"report.json"))


def test_certified_needs_a_suite() -> None:
    with pytest.raises(InputError, match=r"artifacts\.1\.certification: certified without evidence"):
        draft(Verdict("certified")).manifest(measured(*PATHS))


@pytest.mark.parametrize("missing", PATHS)
def test_a_file_that_was_not_measured(missing: str) -> None:
    verdict = Verdict("certified", "G4/point", (), SUITE, "report.json")
    with pytest.raises(InputError, match=f"names '{missing}', which is not one of its files"):
        draft(verdict).manifest(measured(*(path for path in PATHS if path != missing)))


def test_a_fact_that_makes_no_manifest() -> None:
    with pytest.raises(InputError, match="manifest of acme/pii is not valid at max_sequence_length"):
        draft(max_sequence_length="512").manifest(measured(*PATHS))
    with pytest.raises(InputError, match="manifest of acme/pii holds a number out of range"):
        draft(quant_recall_delta=float("nan")).manifest(measured(*PATHS))
