package org.onnxreg.client;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** Contrib operators and the releases that run them: docs/resolve.md, "Contrib operators". */
final class Contrib {
    static final String DOMAIN = "com.microsoft";
    private static final Pattern POSITION = Pattern.compile("[0-9]{1,4}");

    private Contrib() {}

    /** Return true if a release has every need. */
    static boolean meets(RuntimeRelease release, List<String> needs) {
        for (String need : needs) {
            RuntimeRelease first = ContribReleases.first(need);
            if (first == null || first.compareTo(release) > 0) {
                return false;
            }
        }
        return true;
    }

    /**
     * Derive the needs of an artifact without {@code contrib} from its operator set, which has no attributes.
     */
    static List<String> needs(List<Operator> operators, String precision, boolean isOrt) {
        List<String> needs = new ArrayList<String>();
        for (Operator operator : operators) {
            boolean isContrib = operator.domain.equals(DOMAIN);
            String name = isContrib ? operator.name : operator.domain + ":" + operator.name;
            if (isContrib || ContribReleases.first(name) != null) {
                needs.add(name);
            }
            for (String feature : features(operator, precision, isOrt)) {
                if (ContribReleases.first(name + " " + feature) != null) {
                    needs.add(name + " " + feature);
                }
            }
        }
        return needs;
    }

    private static List<String> features(Operator operator, String precision, boolean isOrt) {
        int inputs = 0;
        for (String position : operator.inputs.keySet()) {
            if (POSITION.matcher(position).matches()) {
                inputs = Math.max(inputs, Integer.parseInt(position) + 1);
            }
        }
        List<String> features = new ArrayList<String>();
        features.add("inputs=" + inputs);
        for (String type : operator.elementTypes()) {
            features.add(type);
            if (isOrt) {
                features.add("kernel=" + type);
            }
        }
        if (!precision.equals("int4")) {
            features.add("bits");
            features.add("bits=8");
        }
        return features;
    }
}
