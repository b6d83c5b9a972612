// A folder of a file system of Hadoop, seen through the calls that a table's log needs, each one call from Python. It is
// compiled in the session by Janino, which knows neither generics nor lambdas.

package lakeindex;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

public final class HadoopFiles {
    private static final String DRAFT = ".draft-of-a-log";

    /** A client of a name node has threads and connections: there is one for an address, whatever folders are asked for. */
    private static final Map CONTEXTS = new HashMap();

    private final String root;
    private final FileContext files;

    public HadoopFiles(String root, Configuration conf) throws IOException {
        this.root = root.endsWith("/") ? root.substring(0, root.length() - 1) : root;
        this.files = context(new Path(root).toUri(), conf);
    }

    private static synchronized FileContext context(URI uri, Configuration conf) throws IOException {
        String key = uri.getScheme() + "://" + uri.getAuthority() + "@" + System.identityHashCode(conf);
        FileContext known = (FileContext) CONTEXTS.get(key);
        if (known == null) {
            known = FileContext.getFileContext(uri, conf);
            CONTEXTS.put(key, known);
        }
        return known;
    }

    /** Bytes `start` to `end` (exclusive); to the end of the file if that is less than 0. */
    public byte[] read(String key, long start, long end) throws IOException {
        FSDataInputStream in = this.files.open(this.path(key));
        try {
            in.seek(start);
            return end < 0 ? in.readAllBytes() : in.readNBytes((int) (end - start));
        } finally {
            in.close();
        }
    }

    /** A file as `list` describes it; nothing if there is none. */
    public String head(String key) throws IOException {
        StringBuilder told = new StringBuilder();
        try {
            FileStatus status = this.files.getFileStatus(this.path(key));
            if (status.isFile()) {
                this.tell(told, key, status);
            }
        } catch (FileNotFoundException absent) {
            return "";
        }
        return told.toString();
    }

    /**
     * Writes a file that others see whole or not at all. `create(overwrite=false)` would show it empty first, and for
     * ever if the writer died then; so it is written under another name and renamed, which fails if the name is taken.
     */
    public void write(String key, byte[] data, boolean replace) throws IOException {
        Path target = this.path(key);
        Path draft = new Path(target.getParent(), "." + UUID.randomUUID() + DRAFT);
        try {
            FSDataOutputStream out = this.files.create(
                draft, EnumSet.of(CreateFlag.CREATE), new Options.CreateOpts[] {Options.CreateOpts.createParent()});
            try {
                out.write(data);
                out.hsync();
            } finally {
                out.close();
            }
            this.publish(draft, target, replace);
        } finally {
            this.discard(draft);
        }
    }

    /** The files below a folder, each as key, size and time of change in milliseconds, ended by NUL characters. */
    public String list(String folder) throws IOException {
        StringBuilder told = new StringBuilder();
        this.walk(told, folder);
        return told.toString();
    }

    /** The names of the folders right below a folder, each ended by a NUL character. */
    public String folders(String folder) throws IOException {
        StringBuilder told = new StringBuilder();
        FileStatus[] found = this.children(folder);
        for (int n = 0; n < found.length; n++) {
            if (found[n].isDirectory()) {
                told.append(found[n].getPath().getName()).append('\0');
            }
        }
        return told.toString();
    }

    /** Deletes a file; one that is not there, or a folder, is left. */
    public void delete(String key) throws IOException {
        if (this.head(key).length() > 0) {
            this.files.delete(this.path(key), false);
        }
    }

    private Path path(String key) {
        return new Path(key.isEmpty() ? this.root + "/" : this.root + "/" + key);
    }

    /** Lets a draft have its name, in one step of the file system that really holds it. */
    private void publish(Path draft, Path target, boolean replace) throws IOException {
        Path real = this.files.resolvePath(draft);
        String scheme = real.toUri().getScheme();
        if ("hdfs".equals(scheme)) {
            Options.Rename how = replace ? Options.Rename.OVERWRITE : Options.Rename.NONE;
            this.files.rename(draft, target, new Options.Rename[] {how});
        } else if ("file".equals(scheme)) {
            // Hadoop looks there whether a name is taken and then renames: of two at once both would succeed.
            java.nio.file.Path from = new File(real.toUri().getPath()).toPath();
            java.nio.file.Path to = from.resolveSibling(target.getName());
            if (replace) {
                Files.move(from, to, new CopyOption[] {
                    StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE});
                Files.deleteIfExists(from.resolveSibling("." + from.getFileName() + ".crc"));
            } else {
                Files.createLink(to, from);
            }
        } else {
            throw new UnsupportedOperationException(scheme);
        }
    }

    private void discard(Path draft) {
        try {
            this.files.delete(draft, false);
        } catch (IOException gone) {
            // It has its name by now, or stays behind under one that no listing shows.
        }
    }

    private void walk(StringBuilder told, String folder) throws IOException {
        FileStatus[] found = this.children(folder);
        for (int n = 0; n < found.length; n++) {
            String name = found[n].getPath().getName();
            String key = folder.isEmpty() ? name : folder + "/" + name;
            if (found[n].isDirectory()) {
                this.walk(told, key);
            } else if (!name.endsWith(DRAFT)) {
                this.tell(told, key, found[n]);
            }
        }
    }

    private FileStatus[] children(String folder) throws IOException {
        Path path = this.path(folder);
        try {
            // Of a file it would list the file itself.
            return this.files.getFileStatus(path).isDirectory()
                ? this.files.util().listStatus(path) : new FileStatus[0];
        } catch (FileNotFoundException gone) {
            return new FileStatus[0];
        }
    }

    private void tell(StringBuilder told, String key, FileStatus status) {
        told.append(key).append('\0').append(status.getLen()).append('\0');
        told.append(status.getModificationTime()).append('\0');
    }
}
