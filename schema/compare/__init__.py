"""Differences between two documents, and their severity for an app.

`manifests` compares two manifests and returns a `ManifestDiff`: typed `Change`s with a severity. `severity`
is the table from a field to its meaning and its part of the screen, `json_changes` finds where two JSON values
differ. `overview` groups the changes into one screen, `figures` says if a change is larger than chance.

`graphs` describes differences inside model files, `rebuild_outcome` compares a rebuilt version with the published
one, `version_history` has a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md.
Must not import: `formats`.
"""
