package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

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
        List<ReleaseFile> all = new ArrayList<ReleaseFile>();
        for (Map<String, Object> file : Values.mappings(value.get("files"))) {
            all.add(ReleaseFile.read(Values.text(file.get("role")), file));
        }
        files = Collections.unmodifiableList(all);
        artifact = files.get(0);
    }

    /** Return the release of an artifact, from the manifest of its version. */
    static Release of(String name, String version, String manifestDigest, Map<String, Object> manifest,
            String path) {
        for (Map<String, Object> artifact : Values.mappings(manifest.get("artifacts"))) {
            if (path.equals(artifact.get("path"))) {
                Map<String, Object> value = new LinkedHashMap<String, Object>();
                value.put("name", name);
                value.put("version", version);
                value.put("manifest", manifestDigest);
                value.put("format", artifact.get("format"));
                value.put("precision", artifact.get("precision"));
                value.put("files", files(artifact, Values.mappingsOrEmpty(manifest.get("files"))));
                return new Release(value);
            }
        }
        throw new IntegrityException("the manifest of " + name + ":" + version + " has no " + path);
    }

    private static List<Object> files(Map<String, Object> artifact, List<Map<String, Object>> shared) {
        List<Object> files = new ArrayList<Object>();
        Map<String, Object> main = new LinkedHashMap<String, Object>(artifact);
        main.put("role", "artifact");
        files.add(main);
        files.addAll(Values.mappingsOrEmpty(artifact.get("files")));
        for (Map<String, Object> file : shared) {
            if (Artifact.isDownloaded(file)) {
                files.add(file);
            }
        }
        return files;
    }

    /** Return the file with a path. */
    public ReleaseFile file(String path) {
        for (ReleaseFile file : files) {
            if (file.path.equals(path)) {
                return file;
            }
        }
        throw new NotFoundException(this + " has no file " + path);
    }

    /** Return the first file with a role, such as {@code tokenizer} or {@code labels}. */
    public ReleaseFile fileOfRole(String role) {
        for (ReleaseFile file : files) {
            if (file.role.equals(role)) {
                return file;
            }
        }
        throw new NotFoundException(this + " has no file of the role " + role);
    }

    /** Return true if a file has this role. */
    public boolean hasRole(String role) {
        for (ReleaseFile file : files) {
            if (file.role.equals(role)) {
                return true;
            }
        }
        return false;
    }

    /** Return true if another release is the same artifact of the same version. */
    boolean isSame(Release other) {
        return other != null && manifest.equals(other.manifest) && artifact.path.equals(other.artifact.path);
    }

    Map<String, Object> toJson() {
        Map<String, Object> value = new LinkedHashMap<String, Object>();
        value.put("name", name);
        value.put("version", version);
        value.put("manifest", manifest);
        value.put("format", format);
        value.put("precision", precision);
        List<Object> list = new ArrayList<Object>();
        for (ReleaseFile file : files) {
            list.add(file.toJson());
        }
        value.put("files", list);
        return value;
    }

    @Override
    public String toString() {
        return name + ":" + version;
    }
}
