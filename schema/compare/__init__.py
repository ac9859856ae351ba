"""Differences between two documents, and their severity for an app.

`json_changes` finds where two JSON values differ, `severity` maps each field to the meaning of its change, `manifests`
makes `Change`s, `figures` says if a change of a figure is larger than chance, `overview` groups the changes into one
screen. `rebuild_outcome` compares a rebuilt version with the published one, `version_history` has a row for each version.

Start with `manifests.py`. The rules in words: docs/diff.md.
Must not import: `formats`.
"""
