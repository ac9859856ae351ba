package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The element types for which a minimal build has an operator. */
final class TypeRestriction {
    private final Map<String, List<String>> inputs;
    private final Map<String, List<String>> outputs;
    /** Combinations of the types of inputs 0, 2 and 1; null if the types are given by position. */
    private final Set<List<String>> triples;

    private TypeRestriction(Map<String, Object> value) {
        boolean isCustom = value.containsKey("custom");
        inputs = Operator.types(isCustom ? null : value.get("inputs"));
        outputs = Operator.types(isCustom ? null : value.get("outputs"));
        triples = isCustom ? triples(value.get("custom")) : null;
    }

    static TypeRestriction read(String json) {
        try {
            return new TypeRestriction(Values.mapping(JsonReader.read(json)));
        } catch (InputException error) {
            throw new InputException("the types of an operator: " + error.getMessage());
        }
    }

    /** Return true if every type is recorded and allowed. */
    static boolean allows(List<String> allowed, List<String> types) {
        return types != null && !types.isEmpty() && allowed.containsAll(types);
    }

    boolean allows(Operator operator) {
        // ONNX Runtime restricts OneHot by triples only: a config in another form allows none.
        if (triples != null || (operator.domain.equals("ai.onnx") && operator.name.equals("OneHot"))) {
            return allowsTriples(operator.inputs);
        }
        return allowsPositions(inputs, operator.inputs) && allowsPositions(outputs, operator.outputs);
    }

    private static boolean allowsPositions(
            Map<String, List<String>> allowed, Map<String, List<String>> types) {
        for (Map.Entry<String, List<String>> entry : allowed.entrySet()) {
            if (!allows(entry.getValue(), types.get(entry.getKey()))) {
                return false;
            }
        }
        return true;
    }

    private boolean allowsTriples(Map<String, List<String>> types) {
        boolean isAny = false;
        for (String indices : at(types, "0")) {
            for (String values : at(types, "2")) {
                for (String depth : at(types, "1")) {
                    List<String> triple = new ArrayList<String>();
                    Collections.addAll(triple, indices, values, depth);
                    if (triples == null || !triples.contains(triple)) {
                        return false;
                    }
                    isAny = true;
                }
            }
        }
        return isAny;
    }

    private static List<String> at(Map<String, List<String>> types, String position) {
        List<String> names = types.get(position);
        return names == null ? Collections.<String>emptyList() : names;
    }

    private static Set<List<String>> triples(Object value) {
        Set<List<String>> triples = new HashSet<List<String>>();
        for (Object triple : Values.list(value)) {
            triples.add(Values.texts(triple));
        }
        return triples;
    }
}
