"""Versions in OCI registries (Docker Hub, Harbor, ghcr.io, ...): for publishing and reading; see docs/oci.md.

`OciTarget` is the place that an `oci://` URL names, `OciClient` speaks the distribution protocol to it, with the credentials
that docker, skopeo and oras keep. `documents` makes the manifests; `versions` sends a version and brings it back.

Start with `documents.py`.
Must not import: `maintain`, `server`.
"""
