package org.onnxreg.client;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;

/** An answer of a server. Its body ends where the server said, or with a RemoteException. */
final class HttpResponse implements Closeable {
    final int status;
    private final HttpURLConnection connection;
    private final String path;
    private final Cancellation cancellation;
    private InputStream body;
    private long received;
    private boolean isAtEnd;

    HttpResponse(HttpURLConnection connection, String path, Cancellation cancellation) throws IOException {
        this.connection = connection;
        this.path = path;
        this.cancellation = cancellation;
        status = connection.getResponseCode();
    }

    /** Return a header; an empty text if the server did not send it. */
    String header(String name) {
        String value = connection.getHeaderField(name);
        return value == null ? "" : value;
    }

    /** Read some bytes; -1 at the end. */
    int read(byte[] buffer) {
        cancellation.check();
        try {
            body = body == null ? connection.getInputStream() : body;
            int count = body.read(buffer);
            received += Math.max(count, 0);
            isAtEnd = count < 0;
            if (isAtEnd && !isComplete()) {
                throw new RemoteException(path + " ended early", true);
            }
            return count;
        } catch (IOException error) {
            throw Http.failure(path, error);
        }
    }

    private boolean isComplete() {
        String length = header("Content-Length");
        return !length.matches("[0-9]{1,18}") || received >= Long.parseLong(length);
    }

    @Override
    public void close() {
        if (!isAtEnd) {
            connection.disconnect();
        }
        try {
            if (body != null) {
                body.close();
            }
        } catch (IOException error) {
            connection.disconnect();
        }
    }
}
