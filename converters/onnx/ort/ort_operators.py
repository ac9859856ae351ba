"""The operator config of an ORT-format file: what `create_config_from_models` of onnxruntime writes, without comments.

That function reads the whole file and copies it once more; this one maps it and asks the same `OperatorTypeUsageManager`
for the types. It took a twentieth of the export of a small encoder.
Source: onnxruntime/tools/ort_format_model/utils.py
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.ort.ort_graph import load_ort, reading, subgraphs, text
from onnxreg.converters.onnx.quiet import quiet

Operators = dict[tuple[str, int], set[str]]
"""The names of the operators used, by domain and version of the operator set."""


def config(path: Path, with_types: bool) -> str:
    """Return the config of an ORT-format file, one line for each domain and version of an operator set.

    Raise InputError if the file is not one.
    """
    with quiet():
        from onnxruntime.tools.ort_format_model.operator_type_usage_processors import OperatorTypeUsageManager

    types = OperatorTypeUsageManager()
    operators: Operators = defaultdict(set)
    with reading(path):
        _walk(load_ort(path).Model().Graph(), {}, operators, types)
    lines = []
    for (domain, version), names in sorted(operators.items()):
        entries = (
            name + ((types.get_config_entry(domain, name) or "") if with_types else "")
            for name in sorted(names)
        )
        lines.append(f"{domain};{version};{','.join(entries)}\n")
    return "".join(lines)


def _walk(graph: Any, outer: dict[bytes, Any], operators: Operators, types: Any) -> None:
    """Add the operators of a graph and of its subgraphs. `outer`: the type of each value of the graphs around it."""
    infos = (graph.NodeArgs(index) for index in range(graph.NodeArgsLength()))
    values = {**outer, **{info.Name(): info.Type() for info in infos}}
    for index in range(graph.NodesLength()):
        node = graph.Nodes(index)
        domain = text(node.Domain()) or DEFAULT_DOMAIN
        operators[domain, node.SinceVersion()].add(text(node.OpType()))
        types.process_node(node, values)
        for at in range(node.AttributesLength()):
            for subgraph in subgraphs(node.Attributes(at)):
                _walk(subgraph, values, operators, types)
