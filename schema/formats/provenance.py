"""The making of a version as SLSA provenance 1 (slsa.dev/spec/v1.0/provenance), from its manifest alone.

An in-toto Statement v1 whose subjects are the version's files. It repeats the recorded recipe and is not signed: it says what
the manifest's digest covers, and claims no SLSA level. docs/sbom.md describes the build type.
"""

from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.formats.sbom import BomSubject, Json
from onnxreg.schema.manifest.manifest import LOCAL_FILES, MEDIA_TYPE
from onnxreg.schema.signing.dsse import STATEMENT

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:onnxreg:build:v1"
BUILDER = "urn:onnxreg:reg-export"
"""`reg export` on a machine of the publisher, about which the manifest says nothing."""


def provenance(subject: BomSubject) -> Json:
    """The statement as a JSON value. NotFoundError if the version has no recorded recipe."""
    manifest, recipe = subject.manifest, subject.manifest.recipe
    if recipe is None:
        raise NotFoundError(
            f"{manifest.name}:{subject.version} has no recorded recipe, so its making is not known",
            "only an export records its recipe",
        )
    dependencies: list[Json] = []
    if (source := manifest.source) is not None:
        dependencies.append(
            {
                "name": source.public_id(manifest.name) or LOCAL_FILES,
                # The SHA-256 of the lines `<sha256>  <path>` of all files, as in Go's dirhash.
                **({"digest": {"dirHash": source.digest.hex}} if source.digest else {}),
                **({"annotations": {"revision": source.revision}} if source.revision else {}),
            }
        )
    if (code := recipe.code) is not None:
        facts = {"distribution": code.distribution, "version": code.version}
        dependencies.append(
            {
                "name": code.name,
                **({"digest": {"sha256": code.digest.hex}} if code.digest else {}),
                "annotations": {key: value for key, value in facts.items() if value is not None},
            }
        )
    chosen = ("profile", "profile_version", "parameters", "trust_remote_code")
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": path, "digest": {"sha256": hex_digest}}
            for path, hex_digest in sorted({(entry.path, entry.digest.hex) for entry in manifest.all_files()})
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {key: getattr(recipe, key) for key in chosen},
                "internalParameters": {"steps": [step.to_json() for step in recipe.steps]},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": dict(recipe.tools)},
                "byproducts": [
                    {
                        "name": f"{manifest.name}:{subject.version}",
                        "digest": {"sha256": subject.digest.hex},
                        "mediaType": MEDIA_TYPE,
                    }
                ],
            },
        },
    }
