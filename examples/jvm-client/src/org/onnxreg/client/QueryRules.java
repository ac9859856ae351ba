package org.onnxreg.client;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The requirements and the ranking of a query: docs/resolve.md, "Query" and "Ranking". */
final class QueryRules {
    private static final String KEYS =
            "formats precision certified max_size min_recall where member contract context";
    private static final List<String> PREFERENCE =
            Arrays.asList("onnx-int8", "ort-android", "onnx-android", "ort", "onnx");
    private static final List<String> FULL_PRECISION = Arrays.asList("float32", "float16", "bfloat16");
    private static final int MAX_ENTRIES = 100;
    private final List<String> formats;
    /** The formats in the order of their rank. */
    private final List<String> listed;
    private final String precision;
    private final boolean isCertified;
    private final long maxSize;
    private final String member;
    private final Map<String, Double> minRecall = new HashMap<>();
    private final List<String> contracts;
    /** The condition of {@code where}; null if there is none. */
    final Expression where;
    /** The tokens that a decoder must keep; null if the query does not say. */
    final Long context;

    QueryRules(Object document) {
        Map<String, Object> fields = Values.fields(document, "a query", KEYS);
        formats = Values.field(fields, "formats", Values::texts, Collections.emptyList());
        listed = formats.isEmpty() ? PREFERENCE : formats;
        precision = Values.field(fields, "precision", Values::text, null);
        isCertified = Values.field(fields, "certified", Values::flag, false);
        maxSize = Values.field(fields, "max_size", Values::size, Long.MAX_VALUE);
        member = Values.field(fields, "member", Values::text, null);
        Map<String, Object> recalls =
                Values.field(fields, "min_recall", Values::mapping, Collections.emptyMap());
        recalls.forEach((label, share) -> minRecall.put(label, Values.share(share)));
        context = Values.field(fields, "context", Values::count, null);
        contracts = Values.field(fields, "contract", value -> value instanceof String
                ? Collections.singletonList(Values.digest(value)) : Values.digests(value),
                Collections.emptyList());
        if (Math.max(formats.size(), Math.max(minRecall.size(), contracts.size())) > MAX_ENTRIES) {
            throw RegException.input("a query has more than " + MAX_ENTRIES
                    + " formats, recalls or contracts");
        }
        String source = Values.field(fields, "where", Values::text, null);
        where = source == null ? null : Expression.ofCandidate(source);
    }

    /** Return the code of the first requirement that an artifact does not meet; null if it meets all. */
    String unmet(Artifact artifact) {
        if (!Objects.equals(artifact.text("member"), member)) {
            return "member";
        }
        if (!contracts.isEmpty() && !contracts.contains(artifact.text("contract"))) {
            return "contract";
        }
        if (!formats.isEmpty() && !formats.contains(artifact.format)) {
            return "format";
        }
        if (precision != null && !precision.equals(artifact.precision)) {
            return "precision";
        }
        if (isCertified && !artifact.state.equals("certified")) {
            return "not-certified";
        }
        if (artifact.download > maxSize) {
            return "too-large";
        }
        if (!hasRecall(artifact.mapping("recall"))) {
            return "recall";
        }
        return hasContext(artifact.mapping("kv_cache")) ? null : "context";
    }

    /** Return a negative number if the first artifact ranks higher on a device, which may be null. */
    int compare(Artifact one, Artifact other, DeviceRules device) {
        int[] left = rank(one, device);
        int[] right = rank(other, device);
        for (int i = 0; i < left.length; i++) {
            if (left[i] != right[i]) {
                return left[i] - right[i];
            }
        }
        int order = listed.contains(one.format) ? 0 : one.format.compareTo(other.format);
        return order != 0 ? order : Long.compare(one.download, other.download);
    }

    private int[] rank(Artifact artifact, DeviceRules device) {
        int state = artifact.state.equals("certified") ? 0 : artifact.state.equals("refused") ? 2 : 1;
        boolean isOpen = formats.isEmpty() && precision == null;
        boolean isUnproven = isOpen && state != 0 && !FULL_PRECISION.contains(artifact.precision);
        int place = listed.indexOf(artifact.format);
        boolean isPreferred = !formats.isEmpty() || Boolean.TRUE.equals(artifact.value.get("preferred"));
        boolean isSlow = device != null && device.isSlow(artifact);
        return new int[] {state, isUnproven ? 1 : 0, isSlow ? 1 : 0, isPreferred ? 0 : 1,
            place < 0 ? listed.size() : place};
    }

    private boolean hasContext(Map<String, Object> cache) {
        return context == null || (!cache.isEmpty() && context <= Values.count(cache.get("max_tokens")));
    }

    private boolean hasRecall(Map<String, Object> recall) {
        return minRecall.entrySet().stream().allMatch(bound -> {
            Object measured = recall.get(bound.getKey());
            return measured != null && Values.number(measured) >= bound.getValue();
        });
    }
}
