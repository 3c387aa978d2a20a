"""ApiVersions (18), versions 0-4: the APIs in the registry, with their versions.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the versions of ApiVersions itself (KIP-511),
never with a close. Produce is advertised from version 0, though 0-2 are refused: librdkafka up to 2.11 sends
uncompressed, or in the old message format, to a broker that does not show them (KAFKA-18659).

Version 0: the keys with their versions. Versions 1-2: throttle time.
Version 3: the client's name and version, refused if they are malformed (KIP-511); the answer names features (KIP-584).
Version 4: the lowest level of a feature may be 0 (KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from barnabas.broker.metadata import features
from barnabas.broker.metrics.telemetry import ClientTelemetry
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import APIS, Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FROM_ZERO_SINCE = 4
#: GetTelemetrySubscriptions and PushTelemetry: advertised if pushed metrics can be read (KIP-714).
TELEMETRY = (71, 72)
_SOFTWARE_CHARS = 200
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiVersionsRequest, ApiVersionsResponse, uses=NOTHING)
def handle(context: Context, request: ApiVersionsRequest | None, telemetry: ClientTelemetry) -> ApiVersionsResponse:
    if request is None:
        return _unsupported()
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software = name[:_SOFTWARE_CHARS], version[:_SOFTWARE_CHARS]
    return _all(context.version, left_out=() if telemetry.is_on else TELEMETRY)


def _all(version: int, left_out: Collection[int]) -> ApiVersionsResponse:
    served = [each for key, each in sorted(APIS.items()) if key not in left_out and not each.for_nodes]
    keys = [ApiVersion(each.key, each.advertised.first, each.advertised.last) for each in served]
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name, feature.lowest, feature.highest)
            for name, feature in features.FEATURES.items()
            if feature.lowest or version >= FROM_ZERO_SINCE
        ],
        finalized_features_epoch=features.EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name, feature.finalized, feature.finalized)
            for name, feature in features.FEATURES.items()
        ],
    )


def _unsupported() -> ApiVersionsResponse:
    """The answer to an unknown version."""
    own = APIS[ApiVersionsRequest.__wire__.key]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(own.key, own.advertised.first, own.advertised.last)],
    )
