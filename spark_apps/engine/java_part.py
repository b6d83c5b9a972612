"""Java of this package, compiled in a session's JVM by Janino, the compiler that Spark ships for the code it generates.

So no jar has to be on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_COMPILED: list[tuple[Any, str, Any]] = []
"""A JVM, a source, and the loader of its classes."""


def with_sequences(jvm: Any, source: str) -> str:
    """Return a source with the type of Scala's sequences, which differs between Scala 2.12 and 2.13, for ``@SEQ@``."""
    modern = jvm.scala.util.Properties.versionNumberString() >= "2.13"
    return source.replace("@SEQ@", "scala.collection.immutable.Seq" if modern else "scala.collection.Seq")


def together(sources: Iterable[str]) -> str:
    """Return several files of one package as one: Janino compiles one at a time, and their classes know one another."""
    imports: dict[str, None] = {}
    package, classes = "", list[str]()
    for source in sources:
        for line in source.splitlines():
            if line.startswith("import "):
                imports[line] = None
            elif line.startswith("package "):
                package = line
            else:
                classes.append(line)
    return "\n".join([package, *imports, *classes])


def compiled(jvm: Any, source: str, beside: Any = None) -> Any:
    """Return the loader of the classes of a source, compiled once for a JVM.

    :param beside: the loader of classes that the source knows; else those of the session.
    """
    known = next((loader for where, text, loader in _COMPILED if where is jvm and text == source), None)
    if known is None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(beside or jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(source)
        known = compiler.getClassLoader()
        _COMPILED.append((jvm, source, known))
    return known


def new(jvm: Any, loader: Any, name: str, arguments: Sequence[Any]) -> Any:
    """Return an object of a compiled class, by its only constructor."""
    (constructor,) = loader.loadClass(name).getDeclaredConstructors()
    constructor.setAccessible(True)
    values = jvm.java.util.ArrayList()
    for argument in arguments:
        values.add(argument)
    array = values.toArray()
    for position, kind in enumerate(constructor.getParameterTypes()):
        if kind.getName() == "long":  # py4j hands small numbers on as int
            array[position] = jvm.java.lang.Long.valueOf(str(arguments[position]))
    return constructor.newInstance(array)
