package org.onnxreg.client;

import java.io.IOException;

/** Reading or writing on the device failed, for example because the disk is full. */
public final class LocalException extends RegException {
    private static final long serialVersionUID = 1;

    LocalException(String action, IOException cause) {
        super(Family.LOCAL, action + " failed: " + cause.getMessage(), cause);
    }
}
