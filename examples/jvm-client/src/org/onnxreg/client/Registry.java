package org.onnxreg.client;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A registry of ONNX models and the releases that this app has of them.
 *
 * <pre>{@code
 * Registry registry = new Registry("https://models.example/tree", directory);
 * Question question = new Question().certified().device(new Device("1.23.2"));
 * Release release = registry.update("acme/pii", question);
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

    /**
     * Answer which artifact this device gets, and why it does not get the others. Download documents only.
     */
    public Answer resolve(String name, Question question) {
        return answer(name, question, question.hasRollouts, new Cancellation()).answer;
    }

    /** Update a model with the default options. */
    public Release update(String name, Question question) {
        return update(name, question, new UpdateOptions());
    }

    /**
     * Resolve a question, bring the files of its answer here, and make it the current release.
     *
     * <p>An artifact that was rolled back, or that the self-test refused, is never taken again. If a rollout
     * offers one, the device gets the release of the channel; otherwise the current release is returned.
     * Without a network the state that was seen last answers.
     */
    public Release update(String name, Question question, UpdateOptions options) {
        DirectoryLock lock = storage.lock(options.cancellation);
        try {
            Slot slot = slot(name);
            Resolved resolved = answer(name, question, question.hasRollouts, options.cancellation);
            if (slot.refuses(resolved.answer.digest)) {
                resolved = answer(name, question, false, options.cancellation);
            }
            if (!resolved.answer.matches()) {
                throw new NothingFitsException(name, resolved.answer.rejected);
            }
            if (slot.refuses(resolved.answer.digest)) {
                return currentInsteadOf(name + ":" + resolved.answer.version, slot);
            }
            Release release = release(resolved, options.cancellation);
            install(release, resolved.state, options);
            return takeOver(release, slot, options.selfTest);
        } finally {
            lock.close();
        }
    }

    /** Return the current and the previous release of a model. */
    public Slot slot(String name) {
        byte[] bytes = storage.load(storage.slot(name));
        try {
            return bytes == null ? Slot.empty() : Slot.read(bytes);
        } catch (InputException error) {
            throw new IntegrityException("the slot of " + name + " was changed: " + error.getMessage());
        }
    }

    /** Make the previous release current again. The release that was current is not taken again. */
    public Release rollback(String name) {
        DirectoryLock lock = storage.lock(new Cancellation());
        try {
            Slot slot = slot(name);
            if (slot.previous == null) {
                throw new NotFoundException(name + " has no previous release");
            }
            save(name, slot.rolledBack());
            return slot.previous;
        } finally {
            lock.close();
        }
    }

    /**
     * Let releases that were rolled back or refused be taken again, for example after an update of the app.
     */
    public void clearRefusals(String name) {
        DirectoryLock lock = storage.lock(new Cancellation());
        try {
            save(name, slot(name).withoutRefusals());
        } finally {
            lock.close();
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

    /**
     * Return the first file with a role, such as {@code tokenizer} or {@code labels}, verified in this call.
     */
    public File fileOfRole(Release release, String role) {
        return verified(release.fileOfRole(role));
    }

    /** Read the first file with a role into memory. */
    public byte[] readRole(Release release, String role) {
        ReleaseFile file = release.fileOfRole(role);
        byte[] bytes = storage.load(verified(file));
        if (!Sha256.of(bytes).equals(file.digest)) {
            throw new IntegrityException("a file of " + release + " changed while it was read: " + file.path);
        }
        return bytes;
    }

    /**
     * Copy every file of a release to its own path below a directory, for models with external data.
     *
     * <p>Each file is complete or absent, also if several threads or processes extract it.
     */
    public void extract(Release release, File directory) {
        Extraction extraction = new Extraction(storage, directory);
        for (ReleaseFile file : release.files) {
            extraction.copy(verified(file), file);
        }
    }

    /** Delete every file that neither a current nor a previous release needs. */
    public void tidy() {
        tidy(Long.MAX_VALUE);
    }

    /**
     * Delete every file that no release needs; if more bytes than the budget stay, also previous releases,
     * those of the models first that were updated longest ago. Current releases stay.
     */
    public void tidy(long budget) {
        DirectoryLock lock = storage.lock(new Cancellation());
        try {
            new Tidying(storage).run(budget);
        } finally {
            lock.close();
        }
    }

    /** An answer with the state that it comes from. */
    private static final class Resolved {
        final Answer answer;
        final State state;

        Resolved(Answer answer, State state) {
            this.answer = answer;
            this.state = state;
        }
    }

    private Resolved answer(String name, Question question, boolean hasRollouts, Cancellation cancellation) {
        final Documents documents = documents(cancellation);
        SeenIndex index;
        boolean isOffline = false;
        try {
            index = indexes.refresh(name, documents, cancellation);
        } catch (RemoteException error) {
            index = indexes.loadAfter(error, name);
            isOffline = true;
        }
        State state = new VersionReader(documents).complete(index.state, question.tag);
        OperatorSets operatorSets = new OperatorSets() {
            @Override
            public List<Operator> read(String digest) {
                return Operator.readSet(JsonReader.read(documents.read(digest)));
            }
        };
        String seed = hasRollouts && state.rollout(question.tag) != null ? seed() : null;
        Resolver resolver = new Resolver(state, question.query, question.device, seed, operatorSets);
        return new Resolved(new Answer(resolver.resolve(question.tag), isOffline), state);
    }

    /** Return the release of an answer. IntegrityException if it is not what its publisher says. */
    private Release release(Resolved resolved, Cancellation cancellation) {
        State state = resolved.state;
        String version = resolved.answer.version;
        Documents documents = documents(cancellation);
        VersionReader versions = new VersionReader(documents);
        if (!versions.agrees(state, version)) {
            indexes.noteWrongSummaries(state.name);
            throw new IntegrityException("the index file of " + state.name + " says of " + version
                    + " what its manifest does not");
        }
        Release release = versions.release(state, version, resolved.answer.artifact);
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

    private static Release currentInsteadOf(String release, Slot slot) {
        if (slot.current == null) {
            throw new SelfTestException(release + " was refused before, and no other release is here", null);
        }
        return slot.current;
    }

    private void install(Release release, State state, UpdateOptions options) {
        Set<String> earlier = new HashSet<String>();
        for (String model : storage.models()) {
            for (Release other : slot(model).releases()) {
                for (ReleaseFile file : other.files) {
                    if (storage.has(file)) {
                        earlier.add(file.digest);
                    }
                }
            }
        }
        long total = 0;
        for (ReleaseFile file : release.files) {
            total += file.size;
        }
        List<Delta> offered = options.hasDeltas
                ? Offers.read(state, release.version, documents(options.cancellation))
                : Collections.<Delta>emptyList();
        try {
            new Installation(downloads, new Progress(options, total)).install(release, earlier, offered);
        } catch (IOException error) {
            throw new LocalException("storing " + release, error);
        }
    }

    /** Make a release current, if the app's test passes. */
    private Release takeOver(Release release, Slot slot, SelfTest selfTest) {
        if (slot.isCurrent(release)) {
            return release;
        }
        try {
            if (selfTest != null && !selfTest.passes(this, release)) {
                throw new SelfTestException(release + " failed the self-test of the app", null);
            }
        } catch (SelfTestException error) {
            save(release.name, slot.refusing(release));
            throw error;
        } catch (RegException error) {
            throw error;
        } catch (Exception error) {
            save(release.name, slot.refusing(release));
            throw new SelfTestException(release + " failed the self-test of the app: " + error, error);
        }
        save(release.name, slot.with(release));
        return release;
    }

    private void save(String name, Slot slot) {
        storage.save(storage.slot(name), slot.write().getBytes(StandardCharsets.UTF_8));
    }

    private Documents documents(final Cancellation cancellation) {
        return new Documents() {
            @Override
            public byte[] read(String digest) {
                return downloads.document(digest, cancellation);
            }
        };
    }

    private File verified(ReleaseFile file) {
        File blob = storage.blob(file.digest);
        if (!blob.isFile()) {
            throw new NotFoundException(file.path + " has not been downloaded");
        }
        if (!storage.digest(blob).equals(file.digest)) {
            storage.delete(blob);
            throw new IntegrityException(file.path + " was changed on this device: update again");
        }
        return blob;
    }
}
