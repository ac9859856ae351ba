package org.onnxreg.client;

import java.util.List;

/** No artifact matches the question. {@link #rejected} says why for each. */
public final class NothingFitsException extends NotFoundException {
    private static final long serialVersionUID = 1;

    /** Every artifact that was considered, with the code of its rejection. */
    public final transient List<Rejection> rejected;

    NothingFitsException(String name, List<Rejection> rejected) {
        super(name + " has no artifact for this device and query");
        this.rejected = rejected;
    }
}
