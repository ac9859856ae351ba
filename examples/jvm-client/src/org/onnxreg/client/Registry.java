package org.onnxreg.client;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;

/**
 * A registry of ONNX models and the releases that this app has of them.
 *
 * <pre>{@code
 * Registry registry = new Registry("https://models.example/tree", directory);
 * Question question = new Question().certified().device(new Device("1.23.2"));
 * Release release = registry.update("acme/pii", question).release;
 * File model = registry.file(release, release.artifact.path);
 * }</pre>
 *
 * <p>Every call blocks, and this class has no threads: call it from a worker. It may be used by several
 * threads and processes: one at a time updates, rolls back or tidies, and the others wait. Everything that
 * it returns was verified by its SHA-256. Errors are {@link RegException}.
 */
public final class Registry {
    private final Storage storage;
    private final IndexReader indexes;
    private final Downloads downloads;
    private final Trust trust;

    /**
     * Read a registry.
     *
     * @param url of the registry's tree: a static web server, or {@code reg serve}
     * @param directory for this registry alone; it is created if it is missing
     */
    public Registry(String url, File directory) {
        this(url, directory, new Settings());
    }

    /** Read a registry with settings. */
    public Registry(String url, File directory, Settings settings) {
        storage = new Storage(directory);
        trust = settings.trust;
        Http http = new Http(url, settings);
        downloads = new Downloads(http, storage);
        indexes = new IndexReader(http, storage, trust);
    }

    /** Answer which artifact this device gets, and why it does not get the others. Download documents only. */
    public Answer resolve(String name, Question question) {
        Cancellation cancellation = new Cancellation();
        return answer(look(name, cancellation), name, question, question.tag, question.hasRollouts, cancellation);
    }

    /** Update a model with the default options. */
    public Update update(String name, Question question) {
        return update(name, question, new UpdateOptions());
    }

    /**
     * Resolve a question, bring the files of its answer here, and make it the current release.
     *
     * <p>An artifact that the self-test refused, or a release that was rolled back, is not taken again: the next
     * certified artifact of the release is tried, then the release of the channel. A device does not stay on a release
     * that was withdrawn. Without a network, the last seen state answers.
     */
    public Update update(String name, Question question, UpdateOptions options) {
        try (DirectoryLock lock = storage.lock(options.cancellation)) {
            RegException failure = null;
            Contact[] contact = new Contact[1];
            while (true) {
                Slot slot = slot(name);
                Decision decision = Decision.of(name, slot, question.tag,
                        (tag, isOther) -> {
                            contact[0] = contact[0] == null ? look(name, options.cancellation) : contact[0];
                            return answer(contact[0], name, question, tag, question.hasRollouts && !isOther,
                                    options.cancellation);
                        },
                        () -> indexes.withdrawals(name));
                if (decision.answer == null) {
                    if (decision.isLeaving) {
                        storage.saveSlot(name, slot.withoutReleases());
                    }
                    if (decision.isStaying && failure == null) {
                        return new Update(slot.current, false, contact[0].isOffline);
                    }
                    throw failure != null ? failure : decision.error;
                }
                Release release = release(decision.answer, options.cancellation);
                if (failure != null && slot.isCurrent(release)) {
                    throw failure;
                }
                install(release, decision.answer.state, options);
                boolean isChanged = !slot.isCurrent(release);
                failure = isChanged ? test(release, options.selfTest) : null;
                if (failure == null) {
                    storage.saveSlot(name, slot.with(release));
                    return new Update(release, isChanged, contact[0].isOffline);
                }
                storage.saveSlot(name, slot.refusing(release.artifact.digest));
            }
        }
    }

    /** Return the current and the previous release of a model. */
    public Slot slot(String name) {
        return storage.readSlot(name);
    }

    /**
     * Make the previous release current again, unless it was withdrawn. The release that was current is not
     * taken again.
     */
    public Release rollback(String name) {
        try (DirectoryLock lock = storage.lock(new Cancellation())) {
            Slot slot = slot(name).rolledBack(name, indexes.withdrawals(name));
            storage.saveSlot(name, slot);
            return slot.current;
        }
    }

    /** Let releases that were rolled back or refused be taken again, for example after an update of the app. */
    public void clearRefusals(String name) {
        try (DirectoryLock lock = storage.lock(new Cancellation())) {
            storage.saveSlot(name, slot(name).withoutRefusals());
        }
    }

    /**
     * Return a file of a release, whose bytes were verified in this call.
     *
     * <p>Its name is its digest. Do not change it. If a model needs files beside it under their own names,
     * use {@link #extract}.
     */
    public File file(Release release, String path) {
        return verified(release.file(path));
    }

    /** Return the first file with a role, such as {@code tokenizer} or {@code labels}, verified in this call. */
    public File fileOfRole(Release release, String role) {
        return verified(release.fileOfRole(role));
    }

    /** Read the first file with a role into memory. */
    public byte[] readRole(Release release, String role) {
        ReleaseFile file = release.fileOfRole(role);
        byte[] bytes = storage.load(verified(file));
        if (!Sha256.of(bytes).equals(file.digest)) {
            throw RegException.integrity("a file of " + release + " changed while it was read: " + file.path);
        }
        return bytes;
    }

    /**
     * Copy every file of a release to its own path below a directory, for models with external data.
     *
     * <p>Each file is complete or absent, also if several threads or processes extract it.
     */
    public void extract(Release release, File directory) {
        for (ReleaseFile file : release.files) {
            storage.extract(verified(file), file, directory);
        }
    }

    /** Delete every file that neither a current nor a previous release needs. */
    public void tidy() {
        tidy(Long.MAX_VALUE);
    }

    /**
     * Delete every file that no release needs. If the rest exceeds the budget, delete previous releases too, beginning
     * with the models that were updated longest ago. Current releases stay.
     */
    public void tidy(long budget) {
        try (DirectoryLock lock = storage.lock(new Cancellation())) {
            storage.tidy(budget);
        }
    }

    /** The index file of a model. {@code isOffline} is true if the registry could not be reached. */
    private static final class Contact {
        final SeenIndex index;
        final boolean isOffline;

        Contact(SeenIndex index, boolean isOffline) {
            this.index = index;
            this.isOffline = isOffline;
        }
    }

    private Contact look(String name, Cancellation cancellation) {
        try {
            return new Contact(indexes.refresh(name, documents(cancellation), cancellation), false);
        } catch (RegException.Remote error) {
            return new Contact(indexes.loadAfter(error, name), true);
        }
    }

    private Answer answer(Contact contact, String name, Question question, String tag, boolean hasRollouts,
            Cancellation cancellation) {
        Documents documents = documents(cancellation);
        SeenIndex index = contact.index;
        State state = new VersionReader(documents).complete(index.state, tag);
        String seed = hasRollouts && state.rollout(tag) != null ? seed() : null;
        Resolver resolver = new Resolver(state, question.query, question.device, seed, slot(name).refused,
                digest -> JsonReader.read(documents.read(digest)));
        resolver.here = storage::here;
        return resolver.resolve(tag, contact.isOffline, index.isStale && !contact.isOffline);
    }

    /** Return the release of an answer. Throw an integrity error if the manifest or a signature contradicts it. */
    private Release release(Answer answer, Cancellation cancellation) {
        State state = answer.state;
        String version = answer.version;
        Documents documents = documents(cancellation);
        VersionReader versions = new VersionReader(documents);
        if (!versions.agrees(state, version)) {
            indexes.noteWrongSummaries(state.name);
            throw RegException.integrity("the index file of " + state.name + " says of " + version
                    + " what its manifest does not");
        }
        Release release = versions.release(state, version, answer.artifact);
        if (trust.requiresReleases()) {
            IndexFile index = indexes.load(state.name).index();
            new Signatures(trust, state).checkRelease(version, release.manifest, index, documents);
        }
        return release;
    }

    /** Return the seed of this device, which is made when a channel is rolled out for the first time. */
    private synchronized String seed() {
        byte[] bytes = storage.load(storage.seed());
        if (bytes == null) {
            bytes = Rollout.newSeed().getBytes(StandardCharsets.US_ASCII);
            storage.save(storage.seed(), bytes);
        }
        return new String(bytes, StandardCharsets.US_ASCII);
    }

    private void install(Release release, State state, UpdateOptions options) {
        long total = release.files.stream().mapToLong(file -> file.size).sum();
        List<Delta> offered = options.hasDeltas
                ? Delta.offered(state, release.version, documents(options.cancellation))
                : Collections.emptyList();
        try {
            new Installation(downloads, new Progress(options, total)).install(release, offered);
        } catch (IOException error) {
            throw RegException.local("storing " + release, error);
        }
    }

    /** Return the error if the app's test refuses a release; null if it passes. */
    private RegException test(Release release, SelfTest selfTest) {
        String failure = release + " failed the self-test of the app";
        try {
            return selfTest == null || selfTest.passes(this, release) ? null
                    : new RegException(RegException.Family.SELF_TEST, failure);
        } catch (RegException error) {
            throw error;
        } catch (Exception error) {
            return new RegException(RegException.Family.SELF_TEST, failure + ": " + error, error,
                    Collections.emptyList());
        }
    }

    private Documents documents(Cancellation cancellation) {
        return digest -> downloads.document(digest, cancellation);
    }

    private File verified(ReleaseFile file) {
        File blob = storage.blob(file.digest);
        if (!blob.isFile()) {
            throw RegException.notFound(file.path + " has not been downloaded");
        }
        if (!storage.digest(blob).equals(file.digest)) {
            storage.delete(blob);
            throw RegException.integrity(file.path + " was changed on this device: update again");
        }
        return blob;
    }
}
