"""Hadoop's local file system without child processes and without checksum files; checkpoints are written through it.

Without its native library, which pyspark does not include, Hadoop starts a `chmod` for each file and folder that it
makes and a `stat` whenever an owner is asked for: about 15 processes for a batch. It also writes a checksum file beside
each file. Java can do all of that by itself, and Spark's state has its own checksums.

A JRE has no Java compiler. But Spark includes Janino, with which it compiles its queries. So the class is compiled in
the JVM that needs it and put beside Hadoop's own, where any code that looks up a file system by name finds it.

Invariant: Hadoop's own file system can read what this one writes, and the other way round.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from barnabas.streams.windows.compiled import compiled, loader

_PACKAGE = "org.apache.hadoop.fs"
_RAW, _LOCAL, _DOOR = "BarnabasRawFiles", "BarnabasLocalFiles", "BarnabasDoor"
_LOG = logging.getLogger(__name__)

_SOURCE = f"""
package {_PACKAGE};

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.permission.FsPermission;

public class {_RAW} extends RawLocalFileSystem {{
    public void setPermission(Path path, FsPermission permission) throws IOException {{
        String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }}

    public FileStatus getFileStatus(Path path) throws IOException {{
        return plain(super.getFileStatus(path));
    }}

    public FileStatus getFileLinkStatus(Path path) throws IOException {{
        return getFileStatus(path);
    }}

    public FileStatus[] listStatus(Path path) throws IOException {{
        FileStatus[] found = super.listStatus(path);
        for (int i = 0; i < found.length; i++) {{
            found[i] = plain(found[i]);
        }}
        return found;
    }}

    private static FileStatus plain(FileStatus of) {{
        return new FileStatus(of.getLen(), of.isDirectory(), of.getReplication(), of.getBlockSize(),
            of.getModificationTime(), of.getAccessTime(), null, null, null, of.getPath());
    }}
}}
"""
_SOURCE_LOCAL = f"""
package {_PACKAGE};

public class {_LOCAL} extends LocalFileSystem {{
    public {_LOCAL}() {{
        super(new {_RAW}());
        setWriteChecksum(false);
    }}
}}
"""
# A class is added beside an existing one through a class with private access to it.
_SOURCE_DOOR = f"""
package barnabas;

import java.lang.invoke.MethodHandles;

public class {_DOOR} {{
    public static void define(Class beside, byte[] code) throws Exception {{
        MethodHandles.privateLookupIn(beside, MethodHandles.lookup()).defineClass(code);
    }}
}}
"""


def use_local_files(spark: SparkSession) -> bool:
    """Make this JVM's sessions use it. Returns whether they do; otherwise they are as slow as Hadoop's own."""
    if not (spark.sparkContext.master or "").startswith("local"):
        return False  # workers are other JVMs
    try:
        _use(spark)
    except Exception as error:  # another version of Hadoop or Spark
        _LOG.warning("checkpoints are written through Hadoop's own file system: %s", str(error).splitlines()[0])
        return False
    return True


def _use(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    jvm: Any = spark.sparkContext._jvm
    assert gateway is not None
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    name = f"{_PACKAGE}.{_LOCAL}"
    if conf.get("fs.file.impl") == name:
        return
    hadoop = jvm.java.lang.Class.forName(f"{_PACKAGE}.LocalFileSystem", True, loader(jvm))
    door = compiled(jvm, _SOURCE_DOOR).getClassLoader().loadClass(f"barnabas.{_DOOR}")
    kinds = gateway.new_array(jvm.java.lang.Class, 2)
    kinds[0], kinds[1] = hadoop.getClass(), jvm.java.lang.Class.forName("[B")
    define = door.getMethod("define", kinds)
    for source in (_SOURCE, _SOURCE_LOCAL):
        for code in compiled(jvm, source).getBytecodes().values():
            given = gateway.new_array(jvm.java.lang.Object, 2)
            given[0], given[1] = hadoop, code
            define.invoke(None, given)
    conf.set("fs.file.impl", name)
    # An open instance is shared by all callers.
    files = jvm.org.apache.hadoop.fs.FileSystem
    where = jvm.java.net.URI("file:///")
    files.get(where, conf).close()
    found = files.get(where, conf).getClass().getName()
    if found != name:
        raise RuntimeError(f"files are written by {found}")
