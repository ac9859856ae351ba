package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * The latency of an artifact on this device, for {@code reg measure NAME --on-device FILE}.
 *
 * <pre>{@code
 * Benchmark benchmark = new Benchmark(Build.MODEL, Build.SUPPORTED_ABIS[0], "onnxruntime-android 1.23.2", 1);
 * benchmark.time(release, full, "short (32 tokens)", () -> session.run(inputs), () -> fullSession.run(inputs));
 * String document = benchmark.toJson();
 * }</pre>
 */
public final class Benchmark {
    private static final int WARM_UP = 3;
    private static final int RUNS = 30;
    private final Map<String, Object> document;
    private final List<Object> artifacts = new ArrayList<>();

    /** One run of a model. */
    public interface Run {
        /** Run a session of the app on an input. */
        void run() throws Exception;
    }

    /**
     * Begin a document about this device.
     *
     * @param cpu the model of the device or of its processor
     * @param abi such as {@code arm64-v8a}
     * @param runtime its name and version, such as {@code onnxruntime-android 1.23.2}
     * @param threads of one run
     */
    public Benchmark(String cpu, String abi, String runtime, int threads) {
        document = Values.table("format", "onnxreg-benchmark", "format_version", 1L, "cpu", cpu,
                "isa", DeviceRules.family(abi), "runtime", runtime, "threads", threads,
                "warm_up", WARM_UP, "runs", RUNS, "artifacts", artifacts);
    }

    /**
     * Time an artifact and the same model in full precision on the input with this name. They run in turn, so that a
     * busy moment slows both.
     */
    public void time(Release release, Release full, String input, Run run, Run fullRun) throws Exception {
        double[] times = new double[RUNS];
        double[] ratios = new double[RUNS];
        for (int turn = -WARM_UP; turn < RUNS; turn++) {
            boolean isFirst = turn % 2 == 0;
            double before = isFirst ? 0 : milliseconds(fullRun);
            double own = milliseconds(run);
            times[Math.max(turn, 0)] = own;
            ratios[Math.max(turn, 0)] = own / (isFirst ? milliseconds(fullRun) : before);
        }
        Arrays.sort(times);
        Arrays.sort(ratios);
        double half = 0.98 * Math.sqrt(RUNS); // of the order statistics around a median, for 95 %
        Map<String, Object> ratio = check(input, "ratio", quantile(ratios, 0.5));
        ratio.putAll(Values.table("direction", "lower", "interval", Arrays.<Object>asList(
                ratios[(int) (RUNS / 2 - half)], ratios[(int) Math.ceil(RUNS / 2 + half)])));
        artifacts.add(Values.table("artifact", release.artifact.digest, "path", release.artifact.path,
                "parent", full.artifact.digest, "checks", Arrays.<Object>asList(
                        check(input, "median_ms", quantile(times, 0.5)),
                        check(input, "p95_ms", quantile(times, 0.95)), ratio)));
    }

    /** Return the document. */
    public String toJson() {
        return JsonWriter.write(document);
    }

    private static double milliseconds(Run run) throws Exception {
        long begin = System.nanoTime();
        run.run();
        return Math.max(System.nanoTime() - begin, 1) / 1e6;
    }

    private static double quantile(double[] ordered, double share) {
        double at = share * (ordered.length - 1);
        double low = ordered[(int) at];
        return low + (ordered[(int) Math.ceil(at)] - low) * (at % 1);
    }

    private static Map<String, Object> check(String input, String metric, double value) {
        return Values.table("name", "latency, " + input, "metric", metric, "value", value, "samples", RUNS,
                "verdict", "info");
    }
}
