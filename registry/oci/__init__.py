"""Versions in OCI registries (Docker Hub, Harbor, ghcr.io, ...): for publishing and reading; see docs/oci.md.

`OciTarget` is the place that an `oci://` URL names, `OciClient` speaks the distribution protocol to it, with the credentials
that docker, skopeo and oras keep; `versions` makes the documents of a version, sends it and brings it back.

Start with `versions.py`.
Must not import: `maintain`, `server`.
"""
