"""Versions in OCI registries (Docker Hub, Harbor, ghcr.io, ...): for publishing and reading; see docs/oci.md.

`OciTarget` is the place that an `oci://` URL names, `Login` has the credentials that docker, skopeo and oras keep,
`OciClient` speaks the distribution protocol. `documents` makes the manifests; `versions` sends a version and brings it
back.

Start with `documents.py`.
Must not import: `maintain`, `server`.
"""
