package org.onnxreg.client;

import java.util.List;

/** Reads the operator set with a digest. */
interface OperatorSets {
    List<Operator> read(String digest);
}
