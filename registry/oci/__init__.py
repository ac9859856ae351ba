"""Publish versions to OCI registries (Docker Hub, Harbor, ghcr.io, ...) and fetch them from there; see docs/oci.md.

An `OciTarget` is a parsed `oci://` URL. An `OciClient` speaks the distribution protocol, with the credentials that docker,
skopeo and oras store. `versions` publishes a version with its documents, and fetches versions.

Start with `versions.py`.
Must not import: `maintain`, `server`.
"""
