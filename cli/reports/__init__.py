"""The output of verbs about their results: published versions, transfers, signatures, differences.

Start with `publish_report.py`.
Must not import: `commands`, `services`.
"""
