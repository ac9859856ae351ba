package org.onnxreg.client;

/** Reads small blobs by their digest; their bytes are verified. */
interface Documents {
    byte[] read(String digest);
}
