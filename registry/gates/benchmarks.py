"""How fast a version's artifacts ran, as it was put on record: no gate looks at it."""

from onnxreg.registry.gates.recorded import attestations
from onnxreg.registry.history.commit import load
from onnxreg.registry.storage import Source
from onnxreg.registry.versions import read_version
from onnxreg.schema.benchmark import MEDIA_TYPE, BenchmarkDocument
from onnxreg.schema.ref import Ref


def read_benchmarks(place: Source, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a version, oldest first.

    NotFoundError or IntegrityError where the version or a statement cannot be read.
    """
    version = read_version(place, ref)
    ledger, _ = load(place, version.name)
    about = attestations(ledger, version.digest, version.manifest)
    found = [ledger.fetch(event.statement) for event in about if event.media_type == MEDIA_TYPE]
    return [BenchmarkDocument.decode(data, "a benchmark") for data in found]
