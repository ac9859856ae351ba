"""Calls that join converters and registry, which do not know each other.

An `ExportRequest` is what was asked for, `export_service` runs it and publishes the draft, `export_lookup` finds that it
was run before, `family_service` does the same for families.

Start with `export_service.py`.
Must not import: `commands`.
"""
