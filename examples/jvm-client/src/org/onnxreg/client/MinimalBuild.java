package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The operators of a minimal build of ONNX Runtime: docs/resolve.md, "Operators of a minimal build". */
final class MinimalBuild {
    private static final String GLOBAL = "!globally_allowed_types;";
    private static final String ALL = "!no_ops_specified_means_all_ops_are_required";
    private static final int MAX_LISTED_NAMES = 3;
    private static final Pattern OPSET = Pattern.compile("[0-9]{1,9}");
    private static final Pattern MARK = Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*\"|[{}]");
    private final Set<String> operators = new HashSet<>();
    private final Map<String, TypeRestriction> restrictions = new HashMap<>();
    private List<String> globalTypes;
    private boolean hasAll;

    /** Read an operator config. */
    MinimalBuild(String config) {
        for (String raw : config.split("\r\n|\r|\n")) {
            String line = raw.trim();
            if (line.equals(ALL)) {
                hasAll = true;
            } else if (line.startsWith(GLOBAL)) {
                if (globalTypes != null) {
                    throw RegException.input("globally allowed types are given twice");
                }
                globalTypes = split(line.split(";", -1)[1], ",");
            } else if (!line.isEmpty() && !line.startsWith("#")) {
                readOperators(line);
            }
        }
        if (globalTypes != null && !restrictions.isEmpty()) {
            throw RegException.input("types are given globally and for single operators");
        }
        hasAll &= operators.isEmpty();
    }

    /** Test that the build has the operators of an operator set, and then their types. */
    void test(Object operatorSet, Miss miss) {
        List<String> missing = new ArrayList<>();
        List<String> unfit = new ArrayList<>();
        for (Operator need : Values.each(operatorSet, Operator::new)) {
            String fault = wrongTypes(need);
            if (!hasAll && !operators.contains(key(need.domain, need.opset, need.name))) {
                missing.add(need.toString());
            } else if (!fault.isEmpty()) {
                unfit.add(need + " with " + fault);
            }
        }
        miss.unless(missing.isEmpty(), "operators", () -> "needs " + few(missing) + ", which this build lacks");
        miss.unless(unfit.isEmpty(), "types", () -> "needs " + few(unfit));
    }

    private static String few(List<String> names) {
        int more = names.size() - MAX_LISTED_NAMES;
        return String.join(", ", names.subList(0, Math.min(names.size(), MAX_LISTED_NAMES)))
                + (more > 0 ? " and " + more + " more" : "");
    }

    /** Return the needed types of an operator that the build lacks, in words; empty if it lacks none. */
    private String wrongTypes(Operator need) {
        if (globalTypes != null) {
            return TypeRestriction.without(need.elementTypes(), globalTypes);
        }
        TypeRestriction restriction = restrictions.get(need.domain + ";" + need.name);
        return restriction == null ? "" : restriction.fault(need);
    }

    /** line = domain ";" opset {"," opset} ";" entries */
    private void readOperators(String line) {
        List<String> parts = split(line, ";");
        if (parts.size() != 3 || parts.contains("")) {
            throw RegException.input("a line is not domain;opset;operators");
        }
        List<String> opsets = split(parts.get(1), ",");
        for (String opset : opsets) {
            if (!OPSET.matcher(opset).matches()) {
                throw RegException.input("not an opset: " + Values.brief(opset));
            }
        }
        readEntries(parts.get(0), opsets, parts.get(2));
    }

    /** entries = name [json] {"," name [json]} */
    private void readEntries(String domain, List<String> opsets, String rest) {
        int at = 0;
        while (at < rest.length()) {
            int start = at;
            while (at < rest.length() && rest.charAt(at) != '{' && rest.charAt(at) != ',') {
                at++;
            }
            String name = rest.substring(start, at).trim();
            if (name.isEmpty()) {
                throw RegException.input("an operator has no name");
            }
            for (String opset : opsets) {
                operators.add(key(domain, Long.parseLong(opset), name));
            }
            if (at < rest.length() && rest.charAt(at) == '{') {
                int end = endOfObject(rest, at);
                restrictions.put(domain + ";" + name, new TypeRestriction(rest.substring(at, end)));
                at = end;
            }
            if (at < rest.length() && rest.charAt(at) != ',') {
                throw RegException.input("a comma is missing after " + Values.brief(name));
            }
            at++;
        }
    }

    private static int endOfObject(String source, int start) {
        Matcher mark = MARK.matcher(source);
        int depth = 0;
        for (int from = start; mark.find(from); from = mark.end()) {
            if (mark.group().equals("{")) {
                depth++;
            } else if (mark.group().equals("}") && --depth == 0) {
                return mark.end();
            }
        }
        throw RegException.input("the types of an operator have no end");
    }

    private static List<String> split(String text, String separator) {
        return Arrays.stream(text.split(separator, -1)).map(String::trim).collect(Collectors.toList());
    }

    private static String key(String domain, long opset, String name) {
        return domain + ";" + opset + ";" + name;
    }
}

/** An operator of an artifact, with the element types at its positions. */
final class Operator {
    final String domain;
    final String name;
    final long opset;
    final Map<String, List<String>> inputs;
    final Map<String, List<String>> outputs;

    Operator(Object json) {
        Map<String, Object> value = Values.mapping(json);
        domain = Values.text(value.get("domain"));
        name = Values.text(value.get("name"));
        opset = Values.count(value.get("opset"));
        inputs = types(value.get("inputs"));
        outputs = types(value.get("outputs"));
    }

    static Map<String, List<String>> types(Object value) {
        Map<String, List<String>> types = new LinkedHashMap<>();
        Values.mappingOrEmpty(value).forEach((position, names) -> types.put(position, Values.texts(names)));
        return types;
    }

    @Override
    public String toString() {
        return domain + ":" + name + " (opset " + opset + ")";
    }

    List<String> elementTypes() {
        List<String> types = new ArrayList<>();
        inputs.values().forEach(types::addAll);
        outputs.values().forEach(types::addAll);
        return types;
    }
}

/** The element types for which a minimal build has an operator. */
final class TypeRestriction {
    private static final String UNRECORDED = "types that are not recorded";
    private static final List<String> NONE = Collections.emptyList();
    private final Map<String, List<String>> inputs;
    private final Map<String, List<String>> outputs;
    /** Combinations of the types of inputs 0, 2 and 1; null if the types are given by position. */
    private final List<List<String>> triples;

    TypeRestriction(String json) {
        try {
            Map<String, Object> value = Values.mapping(JsonReader.read(json));
            boolean isCustom = value.containsKey("custom");
            inputs = Operator.types(isCustom ? null : value.get("inputs"));
            outputs = Operator.types(isCustom ? null : value.get("outputs"));
            triples = isCustom ? Values.each(value.get("custom"), Values::texts) : null;
        } catch (RegException error) {
            throw RegException.input("the types of an operator: " + error.getMessage());
        }
    }

    /** Return the types that are not allowed, in words. Types that were not recorded are not allowed. */
    static String without(List<String> types, List<String> allowed) {
        TreeSet<String> wrong = new TreeSet<>(types);
        wrong.removeAll(allowed);
        return types.isEmpty() ? UNRECORDED : String.join(" and ", wrong);
    }

    /** Return the types of an operator that are not allowed, in words; empty if all are. */
    String fault(Operator operator) {
        // ONNX Runtime restricts OneHot by triples only: a config in another form allows none.
        if (triples != null || (operator.domain.equals("ai.onnx") && operator.name.equals("OneHot"))) {
            return wrongTriple(operator.inputs);
        }
        String fault = wrongPosition(inputs, operator.inputs);
        return fault.isEmpty() ? wrongPosition(outputs, operator.outputs) : fault;
    }

    private static String wrongPosition(Map<String, List<String>> allowed, Map<String, List<String>> types) {
        return allowed.entrySet().stream()
                .map(entry -> without(types.getOrDefault(entry.getKey(), NONE), entry.getValue()))
                .filter(fault -> !fault.isEmpty()).findFirst().orElse("");
    }

    private String wrongTriple(Map<String, List<String>> types) {
        String fault = UNRECORDED;
        for (String indices : new TreeSet<>(types.getOrDefault("0", NONE))) {
            for (String values : new TreeSet<>(types.getOrDefault("2", NONE))) {
                for (String depth : new TreeSet<>(types.getOrDefault("1", NONE))) {
                    if (triples == null || !triples.contains(Arrays.asList(indices, values, depth))) {
                        return indices + ", " + values + ", " + depth;
                    }
                    fault = "";
                }
            }
        }
        return fault;
    }
}
