"""Text for people and JSON for programs: tables, sizes, progress. Knows no registry.

`output` prints JSON and tables, `progress` draws on a terminal and is silent elsewhere,
`manifest_view` shows a version.

Start with `output.py`.
Must not import: any other package of `cli`.
"""
