package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/** One artifact of one version, and every file that belongs to it. */
public final class Release {
    /** The name of the model. */
    public final String name;
    /** The version. */
    public final String version;
    /** The digest of the version's manifest. */
    public final String manifest;
    /** The format of the artifact, such as {@code onnx-int8}. */
    public final String format;
    /** The precision of the artifact, such as {@code int8}. */
    public final String precision;
    /** The main file of the artifact. */
    public final ReleaseFile artifact;
    /** Every file of the download; the first is {@link #artifact}. */
    public final List<ReleaseFile> files;

    Release(Map<String, Object> value) {
        name = Values.modelName(Values.text(value.get("name")));
        version = Version.parse(value.get("version")).text;
        manifest = Values.digest(value.get("manifest"));
        format = Values.text(value.get("format"));
        precision = Values.text(value.get("precision"));
        files = Collections.unmodifiableList(Values.each(value.get("files"), ReleaseFile::new));
        artifact = files.get(0);
    }

    /** Return the release of an artifact, from the manifest of its version. */
    static Release of(String name, String version, String manifestDigest, Map<String, Object> manifest,
            String path) {
        for (Map<String, Object> artifact : Values.mappings(manifest.get("artifacts"))) {
            if (path.equals(artifact.get("path"))) {
                Map<String, Object> main = new LinkedHashMap<>(artifact);
                main.put("role", "artifact");
                List<Object> files = new ArrayList<>(Collections.singletonList(main));
                files.addAll(Values.mappingsOrEmpty(artifact.get("files")));
                Values.mappingsOrEmpty(manifest.get("files")).stream()
                        .filter(Artifact::isDownloaded).forEach(files::add);
                return new Release(Values.table("name", name, "version", version, "manifest", manifestDigest,
                        "format", artifact.get("format"), "precision", artifact.get("precision"),
                        "files", files));
            }
        }
        throw RegException.integrity("the manifest of " + name + ":" + version + " has no " + path);
    }

    /** Return the file with a path. */
    public ReleaseFile file(String path) {
        return first(file -> file.path.equals(path), path);
    }

    /** Return the first file with a role, such as {@code tokenizer} or {@code labels}. */
    public ReleaseFile fileOfRole(String role) {
        return first(file -> file.role.equals(role), "of the role " + role);
    }

    private ReleaseFile first(Predicate<ReleaseFile> isWanted, String name) {
        return files.stream().filter(isWanted).findFirst()
                .orElseThrow(() -> RegException.notFound(this + " has no file " + name));
    }

    /** Return true if another release is the same artifact of the same version. */
    boolean isSame(Release other) {
        return other != null && manifest.equals(other.manifest) && artifact.path.equals(other.artifact.path);
    }

    Map<String, Object> toJson() {
        return Values.table("name", name, "version", version, "manifest", manifest, "format", format,
                "precision", precision, "files", Values.each(files, file -> ((ReleaseFile) file).toJson()));
    }

    @Override
    public String toString() {
        return name + ":" + version;
    }
}
