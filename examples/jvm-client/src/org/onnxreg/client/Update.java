package org.onnxreg.client;

/** The current release after an update. */
public final class Update {
    public final Release release;
    /** True if it is another release, or another artifact, than before. */
    public final boolean isChanged;
    /** True if the registry could not be reached, so that the last seen state answered. */
    public final boolean isOffline;

    Update(Release release, boolean isChanged, boolean isOffline) {
        this.release = release;
        this.isChanged = isChanged;
        this.isOffline = isOffline;
    }
}
