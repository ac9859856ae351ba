"""A check that devices load a candidate, by the rules of `reg resolve`."""

from collections.abc import Sequence

from onnxreg.converters.source.file_hash import digest_file
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.summary import ArtifactSummary, summarize
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.device import Device


def refuse_on(devices: Sequence[Device], draft: Draft) -> str | None:
    """The reason for which a device does not load the only artifact of a draft; None if all load it.

    Args:
        devices: presets, which are full builds: no operator set is read.
    """
    if not devices:
        return None
    paths = {path: draft.root / path for path in draft.paths()}
    measured = {name: Descriptor(digest_file(path), path.stat().st_size) for name, path in paths.items()}
    summary = summarize(draft.manifest(measured), Digest.of(b""), 0)
    artifact = ArtifactSummary.read(summary["artifacts"][0])
    for device in devices:
        for requirement in device.requirements(lambda _: ()):
            if problem := requirement.problem(artifact, artifact.size):
                return f"{device.name or device.ort}: {problem}"
    return None
