"""The client that asked for work that continues after its request: a query topic, a stream.

The asker is kept with the work, as `TYPE:NAME@HOST`, and the work is always done with the asker's rights.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.operations import Right
from barnabas.broker.security.principals import ANONYMOUS, Principal, parse_principal


class Asker(NamedTuple):
    """A principal, and the address that it came from."""

    principal: Principal
    host: str

    def __str__(self) -> str:
        return f"{self.principal}@{self.host}"

    def may(self, authorizer: Authorizer | None, right: Right, name: str, *, api: str = "") -> bool:
        """Whether the asker has a right to the topic of that name."""
        return authorizer is None or authorizer.allows(self.principal, self.host, right, name, api=api, quiet=not api)


#: The asker of work from before askers were kept.
NOBODY = Asker(ANONYMOUS, "")


def parse_asker(text: str | None) -> Asker:
    """Parse an asker; any other text gives NOBODY."""
    who, _, host = (text or "").rpartition("@")
    try:
        return Asker(parse_principal(who), host)
    except ValueError:
        return NOBODY
