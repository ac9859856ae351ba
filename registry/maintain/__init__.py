"""Verification, repair, diagnosis and disk usage of a registry.

`verification` reads everything and lists each `Damage`, and checks the surroundings (`Diagnosis`), `repair` fetches good
copies, `space` measures what each model takes, and frees it.

Start with `verification.py`.
Must not import: `server`.
"""
