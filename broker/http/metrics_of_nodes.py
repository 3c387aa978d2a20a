"""One page with the metrics of all nodes, whichever node serves it.

    own text -> each other node is asked for its own, over the connection between nodes -> merged in a thread

Readers that ask at the same time get the same page.
"""

from __future__ import annotations

import trio

from barnabas.broker.between.peers import Peers, Unreachable
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metrics.exposition import Metrics, Shared
from barnabas.broker.metrics.merged import merged
from barnabas.wire.messages.node_metrics import NodeMetricsRequest

#: How long a node may take. Prometheus waits for 10 s by default.
NODE_SECONDS = 5.0


class MetricsOfNodes:
    """`await render(accept)` gives the text and its content type, as `Metrics.render` does for one node."""

    def __init__(self, metadata: MetadataImage, own: Metrics, peers: Peers | None) -> None:
        self._metadata, self._own, self._peers = metadata, own, peers
        self._shared = Shared()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """Ask all nodes for their metrics, and merge the texts. Raises OSError."""
        text, content_type = await self._own.render(accept)
        return await self._shared.made(content_type, lambda: self._page(text, content_type)), content_type

    async def _page(self, text: bytes, content_type: str) -> bytes:
        here = self._metadata.node_id
        pages: dict[int, bytes | None] = dict.fromkeys(sorted({here, *self._metadata.nodes}))
        pages[here] = text

        async def ask(peers: Peers, node: int) -> None:
            with trio.move_on_after(NODE_SECONDS):
                try:
                    told = await peers.ask(node, NodeMetricsRequest(content_type))
                    pages[node] = None if told.error_code else bytes(told.text)
                except Unreachable:
                    pass

        async with trio.open_nursery() as nursery:
            for node in pages:
                if node != here and self._peers is not None:
                    nursery.start_soon(ask, self._peers, node)
        return await trio.to_thread.run_sync(merged, pages)
