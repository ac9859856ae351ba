"""Documents of other tools, made from ours: CycloneDX bills of materials, ORT model packages, JSON Schema.

`sbom` and `model_card` write CycloneDX 1.6, `ort_package` reads ONNX Runtime's model packages and
`package_layout` lays one out, `benchmark` is a statement of measured speed, `json_schema` generates
`schema/schemas/` from the pydantic documents.

Start with the module of the format.
"""
