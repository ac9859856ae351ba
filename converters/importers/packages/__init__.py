"""`reg import` of a model package of ONNX Runtime.

`package_survey` reads its documents, `package_files` checks its files and digests, `import_package` makes
the draft.

Start with `import_package.py`.
"""
