"""The web console: the view for each path below /console/ and /api/.

/console/...   files of the page
/api/...       its data, in JSON; each view is a function in `views/`, called on behalf of the visitor

Changes are POST requests. They are allowed only if `barnabas.http.console.writes` is set. A refusal is one line that
contains Kafka's error code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.broker.http import pages
from barnabas.broker.http.asking import Asker, Broker
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views import cluster, groups, jobs, security, topic_changes, topics
from barnabas.broker.http.views.records import Records
from barnabas.wire.errors import KafkaError

View = Callable[[Asker, Request], Awaitable[Response]]


class Console:
    """The console of one broker, made when the broker serves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        records = Records()
        of_broker: dict[tuple[str, str], Callable[[Asker, Broker, Request], Awaitable[Response]]] = {
            ("GET", "overview"): partial(cluster.overview, started_ms=broker.clock.wall_ms()),
            ("GET", "broker/settings"): cluster.broker_settings,
            ("GET", "topics"): topics.listed,
            ("GET", "topic"): topics.one,
            ("GET", "topic/settings"): topics.settings,
            ("GET", "topic/groups"): topics.groups,
            ("POST", "topic/records"): topic_changes.produce,
            ("POST", "topic/create"): topic_changes.create,
            ("POST", "topic/alter"): topic_changes.alter,
            ("POST", "topic/delete"): topic_changes.delete,
            ("GET", "groups"): groups.listed,
            ("GET", "group"): groups.one,
            ("POST", "group/reset"): groups.reset,
            ("POST", "group/delete"): groups.delete,
            ("GET", "jobs"): jobs.listed,
            ("GET", "transactions"): security.transactions,
            ("GET", "users"): security.users,
            ("GET", "acls"): security.acls,
        }
        self._views: dict[tuple[str, str], View] = {
            ("GET", "topic/records"): records.page,
            ("GET", "topic/record"): records.record,
            ("GET", "topic/download"): records.download,
            ("GET", "topic/tail"): records.tail,
            **{path: partial(_with_broker, view, broker) for path, view in of_broker.items()},
        }

    async def answer(self, request: Request) -> Response | None:
        """The answer to an admitted request; None if there is nothing at its path. Raises Refused."""
        if request.path.startswith("/console/"):
            return pages.page(request)
        path = request.path.removeprefix("/api/")
        if path == "console":
            return json_answer({"writes": self._broker.config["barnabas.http.console.writes"]})
        view = self._views.get((request.method, path))
        if view is None:
            return None
        try:
            return await view(Asker(self._broker, request.who), request)
        except KafkaError as error:
            raise Refused(400, f"{error.code.name}: {error.message}") from None


async def _with_broker(
    view: Callable[[Asker, Broker, Request], Awaitable[Response]], broker: Broker, asker: Asker, request: Request
) -> Response:
    return await view(asker, broker, request)
