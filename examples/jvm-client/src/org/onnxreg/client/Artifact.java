package org.onnxreg.client;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Stream;

/** An artifact as the state line summarises it. */
final class Artifact {
    final Map<String, Object> value;
    final String path;
    final String format;
    final String precision;
    final String state;
    final String digest;
    final long size;
    /** Bytes of the whole download; equal files count once. */
    final long download;
    private final Map<String, Long> sizes = new HashMap<>();

    /** @param isRefused true if a later evaluation refused the artifact, whatever its summary says */
    Artifact(Map<String, Object> value, List<Map<String, Object>> shared, boolean isRefused) {
        this.value = value;
        path = Values.text(value.get("path"));
        format = Values.text(value.get("format"));
        precision = Values.text(value.get("precision"));
        state = isRefused ? "refused" : Values.text(value.get("state"));
        digest = Values.digest(value.get("digest"));
        size = Values.count(value.get("size"));
        sizes.put(digest, size);
        Stream.concat(files().stream(), shared.stream().filter(Artifact::isDownloaded)).forEach(
                file -> sizes.put(Values.digest(file.get("digest")), Values.count(file.get("size"))));
        download = missing(file -> 0);
    }

    /** Return true if a companion is downloaded. Certificates and item scores are not: only verdicts need them. */
    static boolean isDownloaded(Map<String, Object> file) {
        Object role = file.get("role");
        return !"certificate".equals(role) && !"item-scores".equals(role);
    }

    boolean isCertified() {
        return state.equals("certified");
    }

    /** Return the reason why the artifact is not certified, for people. */
    String whyNotCertified() {
        boolean isReference = state.equals("unknown") && precision.equals("float32");
        return "is " + (isReference ? "the reference, in full precision" : state);
    }

    boolean isOrt() {
        return value.containsKey("ort_format") || format.equals("ort") || format.equals("ort-android");
    }

    List<Map<String, Object>> files() {
        return Values.mappingsOrEmpty(value.get("files"));
    }

    List<String> texts(String key) {
        return Values.textsOrEmpty(value.get(key));
    }

    Map<String, Object> mapping(String key) {
        return Values.mappingOrEmpty(value.get(key));
    }

    /** Return the speeds that the log has of the artifact. */
    List<Map<String, Object>> speeds() {
        return Values.mappingsOrEmpty(value.get("speeds"));
    }

    String text(String key) {
        return value.get(key) == null ? null : Values.text(value.get(key));
    }

    /** Return the number of this key; {@code absent} if it is not recorded. */
    double number(String key, double absent) {
        return value.get(key) == null ? absent : Values.number(value.get(key));
    }

    long weights() {
        long sum = size;
        for (Map<String, Object> file : files()) {
            sum += "external-data".equals(file.get("role")) ? Values.count(file.get("size")) : 0;
        }
        return sum;
    }

    /** Return the bytes of the download that are missing. @param here the bytes of a digest that are here */
    long missing(ToLongFunction<String> here) {
        return sizes.entrySet().stream().mapToLong(
                file -> Math.max(0, file.getValue() - here.applyAsLong(file.getKey()))).sum();
    }
}
