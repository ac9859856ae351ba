package org.onnxreg.client;

import java.util.Collections;
import java.util.List;
import java.util.Map;

/** The optional fields of a question or a device: null means absent, and an error names the field. */
final class Fields {
    private final Map<String, Object> values;

    /** @param keys the fields that may be there, separated by spaces */
    Fields(Object value, String subject, String keys) {
        values = Values.mapping(value);
        for (Map.Entry<String, Object> entry : values.entrySet()) {
            if (entry.getValue() != null && !Values.keys(keys).contains(entry.getKey())) {
                throw new InputException(subject + " has no field " + Values.brief(entry.getKey()));
            }
        }
    }

    String text(String key, String absent) {
        try {
            return isAbsent(key) ? absent : Values.text(values.get(key));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    boolean flag(String key) {
        try {
            return !isAbsent(key) && Values.flag(values.get(key));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    long size(String key) {
        try {
            return isAbsent(key) ? Long.MAX_VALUE : Sizes.read(values.get(key));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    /** Read a count; null if it is absent. */
    Long count(String key) {
        try {
            return isAbsent(key) ? null : Long.valueOf(Values.count(values.get(key)));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    List<String> texts(String key) {
        try {
            return Values.textsOrEmpty(values.get(key));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    /** Read one digest, or several. */
    List<String> digests(String key) {
        Object value = values.get(key);
        try {
            return value instanceof String ? Collections.singletonList(Values.digest(value))
                    : isAbsent(key) ? Collections.<String>emptyList() : Values.digests(value);
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    Map<String, Object> mapping(String key) {
        try {
            return Values.mappingOrEmpty(values.get(key));
        } catch (InputException error) {
            throw named(key, error);
        }
    }

    boolean isAbsent(String key) {
        return values.get(key) == null;
    }

    private static InputException named(String key, InputException error) {
        return new InputException(key + ": " + error.getMessage());
    }
}
