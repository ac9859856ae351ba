"""The differences of two versions, and their severity for an app.

`json_changes` finds the differences of two JSON values, `severity` rates the change of each field, and `manifests`
makes a `Change` from each difference. `overview` groups the changes into one screen, `rebuild_outcome` compares a
version with its rebuild, and `version_history` has a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md. Must not import: `query`, `gates`, `inputs`, `formats`.
"""
