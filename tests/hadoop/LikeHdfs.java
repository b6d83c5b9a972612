// A file system that does what HDFS promises, on the disk: a path is that of the disk, its address is hdfs://. What Hadoop
// does on a disk with two steps is done in one, as the name node does it, and names with a colon are refused as there.

package tests.hadoop;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class LikeHdfs extends RawLocalFileSystem {
    private URI address;

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        this.address = URI.create("hdfs://" + uri.getAuthority());
    }

    @Override
    public URI getUri() {
        return this.address == null ? URI.create("hdfs:///") : this.address;  // its base class asks before it is made
    }

    @Override
    protected int getDefaultPort() {
        return 8020;
    }

    @Override
    public String getScheme() {
        return "hdfs";
    }

    @Override
    public void setPermission(Path path, FsPermission permission) {
        // Without Hadoop's native library each would be a process.
    }

    @Override
    public FSDataOutputStream create(
        Path path, boolean overwrite, int buffer, short replication, long block, Progressable progress)
        throws IOException {
        return super.create(named(path), overwrite, buffer, replication, block, progress);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        return plain(super.getFileStatus(path));
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        return this.getFileStatus(path);
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus[] found = super.listStatus(path);
        for (int n = 0; n < found.length; n++) {
            found[n] = plain(found[n]);
        }
        return found;
    }

    /** Without the owner and permissions, which are looked up by the address of a file of the disk. */
    private static FileStatus plain(FileStatus status) {
        return new FileStatus(status.getLen(), status.isDirectory(), 1, status.getBlockSize(),
            status.getModificationTime(), status.getPath());
    }

    static Path named(Path path) {
        if (path.toUri().getPath().indexOf(':') >= 0) {
            throw new IllegalArgumentException("Pathname " + path.toUri().getPath() + " is not a valid DFS filename.");
        }
        return path;
    }

    public static class Context extends DelegateToFileSystem {
        Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(uri, new LikeHdfs(), conf, "hdfs", true);
        }

        @Override
        public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
            java.nio.file.Path source = new File(from.toUri().getPath()).toPath();
            java.nio.file.Path target = new File(named(to).toUri().getPath()).toPath();
            if (overwrite) {
                Files.move(source, target, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
                return;
            }
            try {
                Files.createLink(target, source);
            } catch (java.nio.file.FileAlreadyExistsException taken) {
                throw new FileAlreadyExistsException("rename destination " + to + " already exists.");
            }
            Files.delete(source);
        }
    }
}
