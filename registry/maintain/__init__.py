"""Verification, repair, diagnosis and disk usage of a registry.

`verification` lists each `Damage` and each `Diagnosis`, `repair` fetches good copies, `space` measures what each model takes,
and frees it. Start with `verification.py`.
Must not import: `server`.
"""
