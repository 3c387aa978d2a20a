"""Spark's own plans and expressions, as Py4J shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def nodes(tree: Any) -> Iterator[Any]:
    """A Catalyst tree, from its root on."""
    yield tree
    for child in seq(tree.children()):
        yield from nodes(child)


def seq(scala: Any) -> Iterator[Any]:
    """What a Scala collection holds."""
    found = scala.iterator()
    while found.hasNext():
        yield found.next()


def kind_of(node: Any) -> str:
    """The class of a plan or an expression, without its package."""
    return str(node.getClass().getName()).rpartition(".")[2]
