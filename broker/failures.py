"""The single exceptions in the exception groups that nurseries raise."""

from __future__ import annotations


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The single exceptions of a group, at any depth."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
