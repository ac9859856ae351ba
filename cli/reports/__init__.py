"""The output of verbs about their results: published versions, transfers, differences, texts.

Its nouns: a report of a publication (`publish_report`), of a push or pull (`transfer_report`), and of a
difference (`diff_report`, for a screen or a comment).

Start with `publish_report.py`.
Must not import: `commands`, `services`.
"""
