"""Model families: a backbone, many heads, an out-of-distribution detector, exported as one draft.

A `FamilyPlan` has everything found and hashed, a `LoadedFamily` has it loaded. `export_family` is the entry:
`build_members` makes each graph as a `MemberFile`, `judge_family` measures the whole on held-out rows,
`draft_family` makes the draft, `family_files` the two JSON files that a server reads. Passes, comparison,
checks, facts and latency are those of `engine`.

Start with `export_family.py`. Families in words: docs/families.md.
"""
