package org.onnxreg.client;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** A device and its ONNX Runtime: docs/resolve.md, "Device". It never leaves the device. */
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
        document.put("providers", Arrays.<Object>asList((Object[]) names));
        return this;
    }

    /** Describe a minimal build by the text of its operator config. */
    public Device minimal(String operatorConfig) {
        document.put("build", "minimal");
        document.put("operators", operatorConfig);
        return this;
    }

    /** Name the operator domains that the app registers itself. */
    public Device domains(String... names) {
        document.put("domains", Arrays.<Object>asList((Object[]) names));
        return this;
    }

    /** State the version of the app, for rollouts to some versions of it. */
    public Device appVersion(String version) {
        document.put("app_version", version);
        return this;
    }

    /** State the platform, such as {@code android}, the ABI and the locale, for rollouts to some devices. */
    public Device platform(String platform, String abi, String locale) {
        document.put("platform", platform);
        document.put("abi", abi);
        document.put("locale", locale);
        return this;
    }

    /** Accept no artifact that takes longer than so many times the latency in full precision. */
    public Device maxLatencyRatio(double ratio) {
        document.put("max_latency_ratio", ratio);
        return this;
    }

    /** Limit the memory that a model may use. */
    public Device ram(long bytes) {
        document.put("ram", bytes);
        return this;
    }

    /** Limit the download. */
    public Device freeSpace(long bytes) {
        document.put("free_space", bytes);
        return this;
    }
}
