"""`reg import` of a model package of ONNX Runtime.

`package_survey` checks its files and digests and reads its documents, `import_package` makes the draft.

Start with `import_package.py`.
"""
