"""The benchmarks on record of a version's artifacts. No gate looks at them."""

from onnxreg.registry.gates.gate_history import attestations
from onnxreg.registry.log.commit import load
from onnxreg.registry.read.versions import read_version
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.formats.benchmark import MEDIA_TYPE, BenchmarkDocument


def read_benchmarks(source: RegistryReader, ref: Ref) -> list[BenchmarkDocument]:
    """The benchmarks that a log attests of a version, oldest first.

    Raise NotFoundError or IntegrityError if the version or a statement cannot be read.
    """
    version = read_version(source, ref)
    ledger, _ = load(source, version.name)
    about = attestations(ledger, version.digest, version.manifest)
    documents = [ledger.fetch(event.statement) for event in about if event.media_type == MEDIA_TYPE]
    return [BenchmarkDocument.decode(data, "a benchmark") for data in documents]
