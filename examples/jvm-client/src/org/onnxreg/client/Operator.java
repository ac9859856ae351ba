package org.onnxreg.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * An operator of an artifact, with the element types at its positions. An operator set is a blob that lists
 * them.
 */
final class Operator {
    final String domain;
    final String name;
    final long opset;
    final Map<String, List<String>> inputs;
    final Map<String, List<String>> outputs;

    private Operator(Map<String, Object> value) {
        domain = Values.text(value.get("domain"));
        name = Values.text(value.get("name"));
        opset = Values.count(value.get("opset"));
        inputs = types(value.get("inputs"));
        outputs = types(value.get("outputs"));
    }

    static List<Operator> readSet(Object value) {
        List<Operator> operators = new ArrayList<Operator>();
        for (Map<String, Object> item : Values.mappings(value)) {
            operators.add(new Operator(item));
        }
        return operators;
    }

    static Map<String, List<String>> types(Object value) {
        Map<String, List<String>> types = new LinkedHashMap<String, List<String>>();
        for (Map.Entry<String, Object> entry : Values.mappingOrEmpty(value).entrySet()) {
            types.put(entry.getKey(), Values.texts(entry.getValue()));
        }
        return types;
    }

    List<String> elementTypes() {
        List<String> types = new ArrayList<String>();
        for (List<String> names : inputs.values()) {
            types.addAll(names);
        }
        for (List<String> names : outputs.values()) {
            types.addAll(names);
        }
        return types;
    }
}
