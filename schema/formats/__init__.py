"""Documents of other tools, made from ours: CycloneDX bills of materials, ORT model packages, JSON Schema.

`sbom` and `model_card` write CycloneDX 1.6, `package_layout` lays out
a model package of ONNX Runtime, `benchmark` is a statement of measured speed, `json_schema` generates
`schema/schemas/` from the pydantic documents.

Start with the module of the format.
"""
