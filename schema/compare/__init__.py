"""The differences of two versions, and their severity for an app.

`json_changes` finds the differences of two JSON values, `severity` rates the change of each field, and `manifests`
makes a `Change` from each difference. `overview` sums up the changes on one screen. `rebuild_outcome` compares a
version with its rebuild. `version_history` makes a table with a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md. Must not import: `query`, `gates`, `inputs`, `formats`.
"""
