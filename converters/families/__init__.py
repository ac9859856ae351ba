"""Model families: a backbone, many heads, an out-of-distribution detector, exported as one draft.

`export_family` is the entry: `build_members` makes and measures each graph, `judge_family` measures the
whole on held-out rows, `draft_family` makes the draft, `server_files` the two JSON files that a server
reads.

Start with `export_family.py`. Families in words: docs/families.md.
"""
