package org.onnxreg.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The operators of a minimal build of ONNX Runtime: docs/resolve.md, "Operators of a minimal build". */
final class MinimalBuild {
    private static final String GLOBAL = "!globally_allowed_types;";
    private static final String ALL = "!no_ops_specified_means_all_ops_are_required";
    private static final Pattern OPSET = Pattern.compile("[0-9]{1,9}");
    private static final Pattern MARK = Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*\"|[{}]");

    private final Set<String> operators = new HashSet<String>();
    private final Map<String, TypeRestriction> restrictions = new HashMap<String, TypeRestriction>();
    private List<String> globalTypes;
    private boolean hasAll;

    private MinimalBuild() {}

    /** Read an operator config. */
    static MinimalBuild read(String config) {
        MinimalBuild build = new MinimalBuild();
        for (String raw : config.split("\r\n|\r|\n")) {
            String line = raw.trim();
            if (!line.isEmpty() && !line.startsWith("#")) {
                build.readLine(line);
            }
        }
        if (build.globalTypes != null && !build.restrictions.isEmpty()) {
            throw new InputException("types are given globally and for single operators");
        }
        build.hasAll &= build.operators.isEmpty();
        return build;
    }

    /** Return the code of the first thing that the build lacks for these operators; null if it has all. */
    String shortfall(List<Operator> needs) {
        for (Operator need : needs) {
            if (!hasAll && !operators.contains(key(need.domain, need.opset, need.name))) {
                return "operators";
            }
        }
        for (Operator need : needs) {
            if (!hasTypes(need)) {
                return "types";
            }
        }
        return null;
    }

    private boolean hasTypes(Operator need) {
        if (globalTypes != null) {
            return TypeRestriction.allows(globalTypes, need.elementTypes());
        }
        TypeRestriction restriction = restrictions.get(need.domain + ";" + need.name);
        return restriction == null || restriction.allows(need);
    }

    private void readLine(String line) {
        if (line.equals(ALL)) {
            hasAll = true;
        } else if (line.startsWith(GLOBAL)) {
            if (globalTypes != null) {
                throw new InputException("globally allowed types are given twice");
            }
            globalTypes = split(line.split(";", -1)[1], ",");
        } else {
            readOperators(line);
        }
    }

    /** line = domain ";" opset {"," opset} ";" entries */
    private void readOperators(String line) {
        List<String> parts = split(line, ";");
        if (parts.size() != 3 || parts.contains("")) {
            throw new InputException("a line is not domain;opset;operators");
        }
        List<Long> opsets = new ArrayList<Long>();
        for (String opset : split(parts.get(1), ",")) {
            if (!OPSET.matcher(opset).matches()) {
                throw new InputException("not an opset: " + Values.brief(opset));
            }
            opsets.add(Long.valueOf(opset));
        }
        readEntries(parts.get(0), opsets, parts.get(2));
    }

    /** entries = name [json] {"," name [json]} */
    private void readEntries(String domain, List<Long> opsets, String rest) {
        int at = 0;
        while (at < rest.length()) {
            int start = at;
            while (at < rest.length() && rest.charAt(at) != '{' && rest.charAt(at) != ',') {
                at++;
            }
            String name = rest.substring(start, at).trim();
            if (name.isEmpty()) {
                throw new InputException("an operator has no name");
            }
            for (long opset : opsets) {
                operators.add(key(domain, opset, name));
            }
            if (at < rest.length() && rest.charAt(at) == '{') {
                int end = endOfObject(rest, at);
                restrictions.put(domain + ";" + name, TypeRestriction.read(rest.substring(at, end)));
                at = end;
            }
            if (at < rest.length() && rest.charAt(at) != ',') {
                throw new InputException("a comma is missing after " + Values.brief(name));
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
        throw new InputException("the types of an operator have no end");
    }

    private static List<String> split(String text, String separator) {
        List<String> parts = new ArrayList<String>();
        for (String part : text.split(separator, -1)) {
            parts.add(part.trim());
        }
        return parts;
    }

    private static String key(String domain, long opset, String name) {
        return domain + ";" + opset + ";" + name;
    }
}
