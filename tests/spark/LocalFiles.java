package tests.spark;

import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Files of the local disk as Hadoop keeps them, checksums too, whose permissions are left to the umask. */
public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new WithoutPermissions());
  }

  static class WithoutPermissions extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}
  }
}
