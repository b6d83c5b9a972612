"""Java of this package, compiled in a session's JVM by Janino, the compiler that Spark ships for the code it generates.

So no jar has to be on a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_COMPILED: list[tuple[Any, str, Any]] = []
"""A JVM, a source, and the loader of its classes."""


def compiled(jvm: Any, source: str) -> Any:
    """Return the loader of the classes of a source, compiled once for a JVM."""
    known = next((loader for where, text, loader in _COMPILED if where is jvm and text == source), None)
    if known is None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
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
