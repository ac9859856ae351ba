package org.onnxreg.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.MalformedURLException;
import java.net.URL;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Sends requests to a tree. Waits have limits, and an error says if a retry may help. */
final class Http {
    static final int MAX_DOCUMENT = 64 << 20;
    private static final List<Integer> PASSING = Arrays.asList(408, 425, 429, 500, 502, 503, 504);
    private static final List<Integer> REDIRECTS = Arrays.asList(301, 302, 303, 307, 308);
    private static final int MAX_REDIRECTS = 5;
    private static final long MAX_RETRY_AFTER_SECONDS = 30;

    private final URL base;
    private final Settings settings;

    /** A small file with its entity tag. */
    static final class Document {
        final byte[] bytes;
        final String etag;

        Document(byte[] bytes, String etag) {
            this.bytes = bytes;
            this.etag = etag;
        }
    }

    Http(String url, Settings settings) {
        this.settings = settings;
        try {
            base = new URL(url.endsWith("/") ? url : url + "/");
        } catch (MalformedURLException error) {
            throw RegException.input("not a URL: " + Values.brief(url));
        }
        if (!isHttp(base)) {
            throw RegException.input("not an http or https URL: " + Values.brief(url));
        }
        if (settings.token != null && !isPrivate(base)) {
            throw RegException.input("a token is sent over https only, or to this machine");
        }
    }

    /** Send a request, and follow redirects. The status of the response is 200, 206 or 304. */
    HttpResponse open(String path, Map<String, String> headers, Cancellation cancellation) {
        cancellation.check();
        try {
            URL url = new URL(base, path);
            for (int i = 0; i <= MAX_REDIRECTS; i++) {
                HttpURLConnection connection = connect(url, headers);
                HttpResponse response = new HttpResponse(connection, path, cancellation);
                if (!REDIRECTS.contains(response.status)) {
                    check(path, response);
                    return response;
                }
                String location = response.header("Location");
                response.close();
                url = redirected(path, url, location);
            }
            throw new RegException.Remote(path + " is redirected too often", false);
        } catch (IOException | IllegalArgumentException error) {
            throw failure(path, error);
        }
    }

    /** Read a small file, or return null if it still has this entity tag (empty: no tag is known). */
    Document document(String path, String etag, Cancellation cancellation) {
        for (int attempt = 0;; attempt++) {
            try {
                return documentOnce(path, etag, cancellation);
            } catch (RegException.Remote error) {
                waitBefore(attempt, error, cancellation);
            }
        }
    }

    /** Wait before a new attempt. Throw the error if no attempt is left, or if a retry does not help. */
    void waitBefore(int attempt, RegException.Remote error, Cancellation cancellation) {
        if (!error.isPassing || attempt >= settings.delays.length) {
            throw error;
        }
        cancellation.pause(Math.max(settings.delays[attempt], 1000 * error.retryAfter));
    }

    static RegException.Remote failure(String path, Exception error) {
        return new RegException.Remote("reading " + path + " failed: " + error.getMessage(), true);
    }

    private Document documentOnce(String path, String etag, Cancellation cancellation) {
        Map<String, String> headers = new HashMap<>();
        if (!path.startsWith("blobs/")) {
            headers.put("Cache-Control", "no-cache"); // blobs never change, other files do
        }
        if (!etag.isEmpty()) {
            headers.put("If-None-Match", etag);
        }
        try (HttpResponse response = open(path, headers, cancellation)) {
            byte[] bytes = readAll(response, path);
            if (response.status == 304 && headers.containsKey("If-None-Match")) {
                return null;
            }
            if (response.status != 200) {
                throw new RegException.Remote(path + " answers " + response.status, true);
            }
            return new Document(bytes, response.header("ETag"));
        }
    }

    private static byte[] readAll(HttpResponse response, String path) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] buffer = new byte[1 << 14];
        for (int count = response.read(buffer); count >= 0; count = response.read(buffer)) {
            bytes.write(buffer, 0, count);
            if (bytes.size() > MAX_DOCUMENT) {
                throw new RegException.Remote(path + " is larger than any document", false);
            }
        }
        return bytes.toByteArray();
    }

    private HttpURLConnection connect(URL url, Map<String, String> headers) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) url.openConnection();
        connection.setInstanceFollowRedirects(false);
        connection.setConnectTimeout(settings.patience);
        connection.setReadTimeout(settings.patience);
        connection.setUseCaches(false);
        connection.setRequestProperty("Accept-Encoding", "identity");
        if (settings.token != null && isSameOrigin(url, base)) {
            connection.setRequestProperty("Authorization", "Bearer " + settings.token);
        }
        for (Map.Entry<String, String> header : headers.entrySet()) {
            connection.setRequestProperty(header.getKey(), header.getValue());
        }
        return connection;
    }

    private static void check(String path, HttpResponse response) {
        int status = response.status;
        if (status < 300 && response.header("Content-Type").startsWith("text/html")) {
            response.close();
            throw new RegException.Remote(path + " is a web page, not a file of a registry", false, 403, 0);
        }
        if (status == 200 || status == 206 || status == 304) {
            return;
        }
        long seconds = response.retryAfter();
        response.close();
        if (status == 404 || status == 410) {
            throw RegException.notFound("the registry has no " + path);
        }
        if (status == 401) {
            throw new RegException.Remote(path + " needs a token: use Settings.token", false);
        }
        boolean isPassing = (status < 0 || PASSING.contains(status)) && seconds <= MAX_RETRY_AFTER_SECONDS;
        String more = status == 403 ? ": it is absent, or may not be read"
                : seconds > 0 ? ": try again in " + seconds + " seconds" : "";
        throw new RegException.Remote(path + " answers " + status + more, isPassing, status, seconds);
    }

    private static URL redirected(String path, URL from, String location) throws IOException {
        URL target = new URL(from, location);
        boolean isDowngrade = from.getProtocol().equals("https") && !target.getProtocol().equals("https");
        if (!isHttp(target) || isDowngrade || location.isEmpty()) {
            throw new RegException.Remote(path + " is redirected to a place that is not read", false);
        }
        return target;
    }

    private static boolean isHttp(URL url) {
        return url.getProtocol().equals("http") || url.getProtocol().equals("https");
    }

    private static boolean isSameOrigin(URL one, URL other) {
        return one.getProtocol().equals(other.getProtocol())
                && one.getHost().equalsIgnoreCase(other.getHost())
                && port(one) == port(other);
    }

    private static int port(URL url) {
        return url.getPort() < 0 ? url.getDefaultPort() : url.getPort();
    }

    /** Return true if nobody on the way can read the request. */
    private static boolean isPrivate(URL url) {
        return url.getProtocol().equals("https")
                || url.getHost().matches("localhost|127\\.[0-9]+\\.[0-9]+\\.[0-9]+|\\[?::1\\]?");
    }
}
