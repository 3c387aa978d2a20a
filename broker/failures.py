"""What has gone wrong, out of the groups that nurseries make of it."""

from __future__ import annotations


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The single exceptions of a group, however deep they stand in it."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
