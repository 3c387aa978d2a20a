"""Java classes of ours, compiled in the JVM that needs them: a JRE has no compiler, but Spark brings Janino."""

from __future__ import annotations

from typing import Any


def compiled(jvm: Any, source: str) -> Any:
    """The compiler that has compiled this source. Raises Py4JError."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader(jvm))
    compiler.cook(source)
    return compiler


def loader(jvm: Any) -> Any:
    """The class loader with Spark's classes."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()
