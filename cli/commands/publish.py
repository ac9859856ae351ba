"""`reg publish`: a version into an OCI registry."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.errors import resumable
from onnxreg.cli.options.shared import Json, RefArgument
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg publish acme/pii-small:1.2.0 oci://ghcr.io/acme/pii-small",
    "reg publish acme/pii-small:1.2.0 oci://localhost:5000/acme/pii-small:latest-tested",
    "reg publish acme/pii-small oci://harbor.example/ml/pii --mount-from ml/base",
)


def command(
    session: Session,
    ref: RefArgument,
    url: Annotated[
        str,
        typer.Argument(
            help="oci://host[:port]/repository[:tag]; default tag: the version.", metavar="OCI-URL"
        ),
    ],
    mount_from: Annotated[
        str | None,
        typer.Option(help="Another repository of this server: blobs that it has are mounted, not sent."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish a version into an OCI registry, for skopeo, oras and other programs that read such registries.

    One CNCF ModelPack manifest, under the tag, has every file of the version; `reg import` brings it back.
    Signatures, evaluations and the bill of materials become referrers. What is there already is not sent
    again. A tag that names another manifest is a conflict. A yanked version is not published. Credentials
    are those of docker, skopeo and oras. See docs/oci.md.

    With --json: {ref, url, digest, blobs, bytes, mounted, referrers}: digest is that of the manifest, blobs
    and bytes are what was sent, referrers are the statements there.
    """
    from onnxreg.registry.oci.client import OciTarget
    from onnxreg.registry.oci.versions import publish

    target = OciTarget.parse(url)
    with resumable(), session.progress(f"publishing {ref}") as progress:
        result = publish(session.reader(), Ref.parse(ref), target, mount_from, progress, session.heads())
    document = {
        "ref": str(result.version.ref),
        "url": str(OciTarget(target.host, target.repository, result.target.tag)),
        "digest": str(result.target.digest),
        "blobs": result.blobs,
        "bytes": result.size,
        "mounted": result.mounted,
        "referrers": result.referrers,
    }
    session.show(
        document,
        f"published {result.version.ref} to {result.target}",
        f"sent {output.counted(result.blobs, 'blob')}, {output.size(result.size)}; {result.mounted} mounted",
    )
