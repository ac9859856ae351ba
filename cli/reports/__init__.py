"""What verbs say of their results: what was published, what moved, who signed, what differs.

Start with `publish_report.py`.
Must not import: `commands`, `services`.
"""
