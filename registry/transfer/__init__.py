"""Push, pull, mirror and archive: one copy of versions and their bytes.

A `TransferRequest` names the versions that the destination is to have, `plan` compares the two logs and gives
a `TransferPlan`, `copy` moves blobs in parallel, then the manifest, then the index, and returns a
`TransferResult`. `mirror_registry` copies a whole registry, `archive` writes one file, `export_files` writes
a version as plain files.

Start with `copy.py`, then `plan.py`. The rule for two logs: docs/format.md.
Must not import: `publish`, `maintain`, `server`.
"""
