"""Differences between two documents, and their severity for an app.

`json_changes` finds the differences of two JSON values, `severity` rates the change of each field, `manifests` makes
`Change`s, `figures` tells a real change of a measured value from chance, `overview` groups the changes into one screen.
`rebuild_outcome` compares a rebuilt version with the published one, `version_history` has a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md.
Must not import: `query`, `gates`, `inputs`, `formats`.
"""
