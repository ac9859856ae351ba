"""Versions in OCI registries (Docker Hub, Harbor, ghcr.io, ...): for publishing and reading; see docs/oci.md.

`OciTarget` is the place that an `oci://` URL names, `Login` has the credentials that docker, skopeo and oras keep,
`OciClient` speaks the distribution protocol. `model_pack` makes the documents; `versions` sends a version
and brings it back.

Start with `model_pack.py`.
Must not import: `maintain`, `server`.
"""
