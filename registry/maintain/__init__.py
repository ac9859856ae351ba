"""Verification, repair, diagnosis and disk usage of a registry.

`verification` lists each `Damage` and each `Diagnosis`, `repair` fetches good copies, `space` measures the bytes of each
model and lets old versions expire. Start with `verification.py`.
Must not import: `server`.
"""
