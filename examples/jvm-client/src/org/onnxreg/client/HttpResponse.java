package org.onnxreg.client;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.GZIPInputStream;

/** An answer of a server. If the body is shorter than announced, a read throws RegException.Remote. */
final class HttpResponse implements Closeable {
    private static final Pattern LIMIT = Pattern.compile(";\\s*t=([0-9]{1,9})");

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

    /** Return a header, or an empty text if the server did not send it. */
    String header(String name) {
        String value = connection.getHeaderField(name);
        return value == null ? "" : value;
    }

    /**
     * Return the seconds that the server asks to wait, or 0. A date is compared with the date of the response, not with
     * the device's clock.
     */
    long retryAfter() {
        String after = header("Retry-After");
        Matcher limit = LIMIT.matcher(header("RateLimit"));
        if (after.isEmpty() && limit.find()) {
            after = limit.group(1);
        }
        if (after.matches("[0-9]{1,9}")) {
            return Long.parseLong(after);
        }
        long until = connection.getHeaderFieldDate("Retry-After", 0);
        return connection.getDate() == 0 ? 0 : Math.max(0, (until - connection.getDate()) / 1000);
    }

    /** Read some bytes, and return their number, or -1 at the end. */
    int read(byte[] buffer) {
        cancellation.check();
        try {
            body = body == null ? open() : body;
            int count = body.read(buffer);
            received += Math.max(count, 0);
            isAtEnd = count < 0;
            if (isAtEnd && !isComplete()) {
                throw new RegException.Remote(path + " ended early", true);
            }
            return count;
        } catch (IOException error) {
            throw Http.failure(path, error);
        }
    }

    /** Open the body, and unpack it if the server compressed it without being asked. */
    private InputStream open() throws IOException {
        InputStream stream = connection.getInputStream();
        return isPacked() ? new GZIPInputStream(stream) : stream;
    }

    private boolean isPacked() {
        return header("Content-Encoding").equals("gzip");
    }

    private boolean isComplete() {
        String length = header("Content-Length");
        return isPacked() || !length.matches("[0-9]{1,18}") || received >= Long.parseLong(length);
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
