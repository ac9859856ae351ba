package org.onnxreg.client;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** A question to a model: docs/resolve.md defines its parts. */
public final class Question {
    String tag;
    Map<String, Object> query = new LinkedHashMap<>();
    Map<String, Object> device;
    boolean hasRollouts = true;

    /** Ask for a version or a channel, instead of the newest release that matches. */
    public Question tag(String value) {
        tag = value;
        return this;
    }

    /** Replace the whole query by a JSON document. */
    public Question query(String json) {
        query = new LinkedHashMap<>(Values.mapping(JsonReader.read(json)));
        return this;
    }

    /** Describe the device, which never leaves it. */
    public Question device(Device value) {
        device = value.document;
        return this;
    }

    /** Take no part in the rollouts of a channel. */
    public Question withoutRollouts() {
        hasRollouts = false;
        return this;
    }

    /** Accept only these formats, the preferred one first. */
    public Question formats(String... names) {
        return with("formats", Arrays.<Object>asList((Object[]) names));
    }

    /** Accept only this precision. */
    public Question precision(String name) {
        return with("precision", name);
    }

    /** Accept only certified artifacts. */
    public Question certified() {
        return with("certified", true);
    }

    /** Accept only downloads up to a size, such as {@code 30MB}. */
    public Question maxSize(String size) {
        return with("max_size", size);
    }

    /** Accept only artifacts whose measured recall of a label is at least this share. */
    public Question minRecall(String label, double share) {
        Map<String, Object> bounds = new LinkedHashMap<>();
        bounds.putAll(Values.mappingOrEmpty(query.get("min_recall")));
        bounds.put(label, share);
        return with("min_recall", bounds);
    }

    /** Accept only artifacts for which an expression of docs/query.md is true. */
    public Question where(String expression) {
        return with("where", expression);
    }

    /** Accept only artifacts with one of these contracts: the tensors, labels and tokenizer that the app knows. */
    public Question contract(String... digests) {
        return with("contract", Arrays.<Object>asList((Object[]) digests));
    }

    /** Accept only decoders that keep this many tokens. Memory is counted for this many tokens. */
    public Question context(long tokens) {
        return with("context", tokens);
    }

    /** Accept only artifacts of this stage of a pipeline. */
    public Question member(String name) {
        return with("member", name);
    }

    private Question with(String key, Object value) {
        query.put(key, value);
        return this;
    }
}
