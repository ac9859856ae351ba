"""Calls that join converters and registry, which do not know each other.

An `ExportRequest` is a requested export. `export_service` runs it and publishes the draft, or
recognises an export that was run before.

Start with `export_service.py`.
Must not import: `commands`.
"""
