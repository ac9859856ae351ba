package org.onnxreg.client;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
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
    private final Map<String, Double> minRecall = new LinkedHashMap<>();
    private final List<String> contracts;
    /** The condition of {@code where} and its text; null if there is none. */
    final Expression where;
    final String source;
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
        source = Values.field(fields, "where", Values::text, null);
        where = source == null ? null : Expression.ofCandidate(source);
    }

    void test(Artifact artifact, Miss miss) {
        String stage = artifact.text("member");
        String contract = artifact.text("contract");
        miss.unless(member != null || stage == null, "member", () -> "is one stage of several: " + stage);
        miss.unless(Objects.equals(stage, member), "member", () ->
                "is " + (stage == null ? "not a member of a family" : stage) + ", wanted " + member);
        miss.unless(contracts.isEmpty() || contracts.contains(contract), "contract", () ->
                contract == null ? "has no recorded contract" : "has the contract "
                        + contract.substring(7, 19) + "..., and the app was written for another one");
        miss.unless(formats.isEmpty() || formats.contains(artifact.format), "format", () ->
                "is " + artifact.format + ", wanted " + String.join(" or ", formats));
        miss.unless(precision == null || precision.equals(artifact.precision), "precision", () ->
                "is " + artifact.precision + ", wanted " + precision);
        miss.unless(!isCertified || artifact.isCertified(), "not-certified", artifact::whyNotCertified);
        miss.unless(artifact.download <= maxSize, "too-large", () ->
                "takes " + artifact.download + " bytes to download, at most " + maxSize + " are wanted");
        minRecall.forEach((label, least) -> {
            Object recall = artifact.mapping("recall").get(label);
            miss.unless(recall != null, "recall", () -> "has no measured recall of " + label);
            miss.unless(recall == null || Values.number(recall) >= least, "recall", () ->
                    "has a recall of " + label + " of " + Values.figure(Values.number(recall), 6)
                            + ", wanted " + Values.figure(least, 6));
        });
        Object tokens = artifact.mapping("kv_cache").get("max_tokens");
        miss.unless(context == null || tokens != null, "context", () -> "has a context that is not recorded");
        miss.unless(context == null || tokens == null || context <= Values.count(tokens), "context", () ->
                "has a context of " + tokens + " tokens, " + context + " are wanted");
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
        int state = artifact.isCertified() ? 0 : artifact.state.equals("refused") ? 2 : 1;
        boolean isOpen = formats.isEmpty() && precision == null;
        boolean isUnproven = isOpen && state != 0 && !FULL_PRECISION.contains(artifact.precision);
        int place = listed.indexOf(artifact.format);
        boolean isPreferred = !formats.isEmpty() || Boolean.TRUE.equals(artifact.value.get("preferred"));
        boolean isSlow = device != null && device.isSlow(artifact);
        return new int[] {state, isUnproven ? 1 : 0, isSlow ? 1 : 0, isPreferred ? 0 : 1,
            place < 0 ? listed.size() : place};
    }
}
