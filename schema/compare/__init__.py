"""Differences between two documents, and their severity for an app.

`json_changes` finds where two JSON values differ, `severity` is the table from a field to its meaning, `manifests` makes
`Change`s, `figures` says if one is larger than chance, `overview` groups them into one screen. `rebuild_outcome` compares a
rebuilt version with the published one, `version_history` has a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md.
Must not import: `formats`.
"""
