package org.onnxreg.client;

import java.util.regex.Pattern;

/** How a registry is read. */
public final class Settings {
    private static final Pattern TOKEN = Pattern.compile("[A-Za-z0-9._~+/-]+=*");

    String token;
    int patience = 60000;
    long[] delays = {200, 1000, 3000};
    Trust trust = new Trust();

    /** Send a token to the server ({@code --token-file}), over https or on this machine, and to no other origin. */
    public Settings token(String value) {
        if (!TOKEN.matcher(value).matches()) {
            throw RegException.input("the token has characters that no token has");
        }
        token = value;
        return this;
    }

    /** Give up a server that sends nothing for this many milliseconds. */
    public Settings patience(int milliseconds) {
        patience = milliseconds;
        return this;
    }

    /** Wait this many milliseconds before each new attempt. */
    public Settings delays(long... milliseconds) {
        delays = milliseconds.clone();
        return this;
    }

    /** Require signatures. */
    public Settings trust(Trust value) {
        trust = value;
        return this;
    }
}
