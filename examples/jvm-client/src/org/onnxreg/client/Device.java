package org.onnxreg.client;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** A device and its ONNX Runtime (docs/resolve.md, "Device"). The description never leaves the device. */
public final class Device {
    final Map<String, Object> document;

    private Device(Map<String, Object> document) {
        this.document = new LinkedHashMap<>(document);
    }

    /** Describe a full build of a release of ONNX Runtime, such as {@code 1.23.2}. */
    public Device(String ort) {
        this(new LinkedHashMap<>());
        document.put("ort", ort);
    }

    /** Read a JSON document. */
    public static Device parse(String json) {
        return new Device(Values.mapping(JsonReader.read(json)));
    }

    /** Name the execution providers of the build, by default only CPU. */
    public Device providers(String... names) {
        return with("providers", Arrays.<Object>asList((Object[]) names));
    }

    /** Describe a minimal build by the text of its operator config. */
    public Device minimal(String operatorConfig) {
        document.put("build", "minimal");
        return with("operators", operatorConfig);
    }

    /** Name the operator domains that the app registers itself. */
    public Device domains(String... names) {
        return with("domains", Arrays.<Object>asList((Object[]) names));
    }

    /** State the version of the app, for rollouts to some versions of it. */
    public Device appVersion(String version) {
        return with("app_version", version);
    }

    /** State the platform, such as {@code android}, the ABI and the locale, for rollouts to some devices. */
    public Device platform(String platform, String abi, String locale) {
        document.put("platform", platform);
        document.put("abi", abi);
        return with("locale", locale);
    }

    /** Accept only artifacts whose latency is at most this many times the latency in full precision. */
    public Device maxLatencyRatio(double ratio) {
        return with("max_latency_ratio", ratio);
    }

    /** Limit the memory that a model may use. */
    public Device ram(long bytes) {
        return with("ram", bytes);
    }

    /** Limit the download. */
    public Device freeSpace(long bytes) {
        return with("free_space", bytes);
    }

    private Device with(String key, Object value) {
        document.put(key, value);
        return this;
    }
}
