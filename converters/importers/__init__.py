"""Existing models: loose files, directories of OpenMed's converter, repositories of the Hub.

`add_files` takes loose files, `openmed` and `import_repository` take directories. Files are read and judged like
exports; claims of a document are compared with them, and never count in a model's favour.

Start with `add_files.py`.
"""
