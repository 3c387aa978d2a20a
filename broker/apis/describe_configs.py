"""DescribeConfigs (32), versions 1-4: every key of a topic or broker with its value, source and synonyms."""

from __future__ import annotations

from broker.configs import Entry, describe
from broker.keys import SOURCE_DEFAULT, TYPES
from broker.order import METADATA
from broker.registry import Context, api
from wire.errors import KafkaError
from wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@api(DescribeConfigsRequest, DescribeConfigsResponse, uses=METADATA)
def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    # Each resource once, whatever the request says: the answer is hundreds of times its size.
    for asked in {(r.resource_type, r.resource_name): r for r in request.resources}.values():
        try:
            entries = describe(context.node, asked.resource_type, asked.resource_name)
            if asked.configuration_keys:
                wanted = set(asked.configuration_keys)
                entries = [entry for entry in entries if entry.name in wanted]
            shown = [_show(entry, request) for entry in entries]
            code, message = 0, None
        except KafkaError as error:
            code, message, shown = error.code, str(error), []
        results.append(DescribeConfigsResult(
            error_code=code, error_message=message, resource_type=asked.resource_type,
            resource_name=asked.resource_name, configs=shown,
        ))  # fmt: skip
    return DescribeConfigsResponse(results=results)


def _show(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms] if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source or SOURCE_DEFAULT,
        synonyms=synonyms, is_sensitive=entry.sensitive, config_type=TYPES[entry.key.type],
        documentation=entry.key.doc if request.include_documentation else None,
    )  # fmt: skip
