"""Tables on a file system of Hadoop: the calls of a store, by the Java that Spark reads and writes rows with.

The driver alone has that Java. So the log is read and written there; Python workers, clients of Spark Connect and
Airflow's processes refuse such a location by the words of :class:`~spark_apps.storage.store.Store`.
"""

from __future__ import annotations

import builtins
import importlib.resources
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from spark_apps.engine.java_part import compiled, new
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.engine.spark_utils import over_connect
from spark_apps.storage.errors import (
    InvalidInput,
    LeadsOutside,
    ObjectExists,
    ObjectNotFound,
    ObjectTooLarge,
    StorageUnavailable,
)
from spark_apps.storage.store import HADOOP_SCHEMES, ObjectInfo, Store, store_options, use_for_hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ABSENT = ("FileNotFoundException", "NoSuchFileException")
_TAKEN = ("FileAlreadyExistsException",)
_INSTEAD = "Use a table on hdfs:// itself, or the address of the store (s3://, gs://, abfss://, a local path)."


def reach(spark: SparkSession, location: object) -> None:
    """Let this process open a location on a file system of Hadoop; of others nothing needs to be done.

    :raises InvalidInput: over Spark Connect, whose client has no Java.
    """
    if str(location).partition("://")[0].lower() not in HADOOP_SCHEMES or spark is NO_SPARK:
        return  # the store itself says what is missing
    if over_connect(spark):
        raise InvalidInput(
            f"{location} is on a file system of Hadoop, and a client of Spark Connect has no Java to reach it with.",
            hint="Use a classic session (spark-submit), whose driver has.",
        )
    use_for_hadoop(HadoopStore)


class HadoopStore(Store):
    """A folder on HDFS, or on what a mount table of ``viewfs`` leads to: HDFS or a disk.

    A file appears whole: it is written under another name and renamed to its own, which the name node does for one of
    several alone. ``create(overwrite=false)`` decides between them too, and shows the file before it has its bytes.
    """

    def get(self, key: str, most: int | None = None) -> bytes:
        if most is not None and (info := self.head(key)) is not None and info.size > most:
            raise ObjectTooLarge(
                f"{self.uri}/{key} has {info.size:,} bytes, and may have {most:,} at most. None of them were read."
            )
        return self._ask("get", key, lambda files: bytes(files.read(key, 0, -1)))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._ask("get", key, lambda files: bytes(files.read(key, start, end)))

    def get_range_and_etag(self, key: str, start: int, end: int) -> tuple[bytes, str | None]:
        return self.get_range(key, start, end), None

    def head(self, key: str) -> ObjectInfo | None:
        heads = _infos(self._ask("head", key, lambda files: files.head(key)))
        return heads[0] if heads else None

    def put(self, key: str, data: bytes) -> None:
        self._ask("put", key, lambda files: files.write(key, bytearray(data), True))

    def create(self, key: str, data: bytes) -> None:
        self._ask("create", key, lambda files: files.write(key, bytearray(data), False))

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: HDFS syncs what it closes by a setting of its data nodes (``dfs.datanode.synconclose``)."""

    def list(self, prefix: str, after: str | None = None) -> builtins.list[ObjectInfo]:
        infos = _infos(self._ask("list", prefix, lambda files: files.list(prefix.rstrip("/"))))
        return sorted((info for info in infos if after is None or info.key > after), key=lambda info: info.key)

    def files(self, prefix: str) -> builtins.list[ObjectInfo]:
        return [info for info in self.list(prefix) if info.key.rpartition("/")[0] == prefix.strip("/")]

    def folders(self, prefix: str = "") -> builtins.list[str]:
        listing: str = self._ask("list", prefix, lambda files: files.folders(prefix.rstrip("/")))
        return sorted(listing.split("\0")[:-1])

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._ask("delete", key, partial(_delete, key))

    def _ask(self, verb: str, key: str, call: Callable[[Any], Any]) -> Any:
        from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

        if ".." in key.split("/"):
            raise LeadsOutside(f"The key {key!r} of {self.uri} leads upwards by '..'.", outcome="Nothing was opened.")
        try:
            return call(self._open())
        except Py4JJavaError as error:
            java = error.java_exception
            java = java.getCause() if java.getClass().getSimpleName() == "InvocationTargetException" else java
            name = java.getClass().getSimpleName()
            if name in _ABSENT:
                raise ObjectNotFound(f"{self.uri}/{key} does not exist.") from error
            if name in _TAKEN:
                raise ObjectExists(f"{self.uri}/{key} exists already.") from error
            if name == "UnsupportedOperationException":
                raise InvalidInput(
                    f"{self.uri}/{key} is on {java.getMessage()}://, of which Hadoop does not say whether one of two "
                    "writers alone can create a file.",
                    hint=_INSTEAD,
                ) from error
            raise self._failed(verb, key, f"{name}: {str(java.getMessage()).splitlines()[0]}") from error
        except (Py4JNetworkError, Py4JError, OSError) as error:
            raise self._failed(verb, key, str(error).splitlines()[0] if str(error) else type(error).__name__) from error

    def _failed(self, verb: str, key: str, why: str) -> StorageUnavailable:
        return StorageUnavailable(
            f"The store failed to {verb} {self.uri}/{key}: {why}",
            hint="See whether the name node answers and this user may write there (hdfs dfs -ls), then try again.",
        )

    def _open(self) -> Any:
        from pyspark import SparkContext

        context: Any = SparkContext._active_spark_context
        if context is None:
            raise StorageUnavailable(
                f"{self.uri} is reached by the Java of a Spark session, and none runs in this process.",
                hint="Start a session, or go on in the process that has one.",
            )
        if self._inner is None or self._inner[0] is not context:
            if unknown := sorted(store_options(self._options)):
                raise InvalidInput(
                    f"Storage options were given for {self.uri}, which takes none: {', '.join(unknown)}.",
                    hint="Hadoop's file systems take their settings from Spark's (spark.hadoop.…) and Hadoop's own.",
                )
            jvm = context._jvm
            loader = compiled(jvm, _source())
            arguments = (self.uri, context._jsc.hadoopConfiguration())
            self._inner = context, new(jvm, loader, "lakeindex.HadoopFiles", arguments)
        return self._inner[1]


def _delete(key: str, files: Any) -> None:
    files.delete(key)


def _infos(listing: str) -> builtins.list[ObjectInfo]:
    return [
        ObjectInfo(key, int(size), datetime.fromtimestamp(int(milliseconds) / 1000, UTC))
        for key, size, milliseconds in zip(*[iter(listing.split("\0")[:-1])] * 3, strict=True)
    ]


@cache
def _source() -> str:
    return importlib.resources.files(__package__).joinpath("hadoop_files.java").read_text(encoding="utf-8")
