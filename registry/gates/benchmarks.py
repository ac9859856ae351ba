"""How fast a version's artifacts ran, as it was put on record: no gate looks at it."""

from onnxreg.registry.gates.judging import attestations
from onnxreg.registry.history.ledger import Ledger
from onnxreg.schema.benchmark import MEDIA_TYPE, BenchmarkDocument
from onnxreg.schema.digest import Digest
from onnxreg.schema.manifest import Manifest


def benchmarks(ledger: Ledger, digest: Digest, manifest: Manifest) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a manifest, oldest first.

    NotFoundError or IntegrityError where a statement cannot be read.
    """
    found = [event for event in attestations(ledger, digest, manifest) if event.media_type == MEDIA_TYPE]
    return [BenchmarkDocument.decode(ledger.fetch(event.statement), "a benchmark") for event in found]
