package org.onnxreg.client;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A release of ONNX Runtime by major and minor number, and what it loads. */
final class RuntimeRelease implements Comparable<RuntimeRelease> {
    private static final Pattern RELEASE = Pattern.compile("([0-9]{1,4})\\.([0-9]{1,4})(?:\\.[0-9]{1,4})?");
    /** Minor number, newest opset, newest IR version, newest ORT format. Without a row, the row before counts. */
    private static final int[][] LOADS = {
        {15, 19, 9, 5}, {16, 19, 9, 6}, {17, 20, 9, 6}, {18, 21, 10, 6},
        {21, 22, 10, 6}, {23, 23, 11, 6}, {24, 25, 13, 6}, {25, 26, 13, 6},
    };

    private final String text;
    private final int major;
    private final int minor;

    private RuntimeRelease(String text, int major, int minor) {
        this.text = text;
        this.major = major;
        this.minor = minor;
    }

    static RuntimeRelease parse(String text) {
        Matcher match = RELEASE.matcher(text);
        if (!match.matches()) {
            throw RegException.input("not a release of ONNX Runtime: " + Values.brief(text));
        }
        return new RuntimeRelease(
                text, Integer.parseInt(match.group(1)), Integer.parseInt(match.group(2)));
    }

    int opset() {
        return row()[1];
    }

    int irVersion() {
        return row()[2];
    }

    int ortFormat() {
        return row()[3];
    }

    private int[] row() {
        int[] row = null;
        for (int[] candidate : LOADS) {
            if (major > 1 || (major == 1 && candidate[0] <= minor)) {
                row = candidate;
            }
        }
        if (row == null) {
            throw RegException.input("ONNX Runtime " + major + "." + minor + " is older than 1.15");
        }
        return row;
    }

    @Override
    public String toString() {
        return text;
    }

    @Override
    public int compareTo(RuntimeRelease other) {
        return major == other.major ? minor - other.minor : major - other.major;
    }
}
