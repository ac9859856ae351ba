"""Documents for other tools: CycloneDX bills of materials, model packages of ONNX Runtime, JSON Schema.

`sbom` writes CycloneDX, `hub_layout` lists the files that clients of the Hub look for, `package_layout` lays out a model
package of ONNX Runtime; `json_schema` has the schema of each document.

Start with the module of the format that you need.
"""
