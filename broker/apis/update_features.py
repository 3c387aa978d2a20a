"""UpdateFeatures (57), versions 0-2 (KIP-584): each feature has one level, which it has already.

Version 0: `allow_downgrade`. Version 1: an upgrade type instead, and `validate_only` (KIP-778).
Version 2: the answer no longer has a result for each feature.
"""

from __future__ import annotations

from barnabas.broker.metadata.features import FEATURES
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@api(UpdateFeaturesRequest, UpdateFeaturesResponse, uses=NOTHING)
def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not context.may(ALTER_CLUSTER):
        return UpdateFeaturesResponse(error_code=ALTER_CLUSTER.refusal, error_message=None)
    for update in request.feature_updates:
        wrong = _objection(update)
        if wrong:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message="The update failed for all features: "
                f"invalid level {update.max_version_level} for {update.feature[:300]}. {wrong}",
            )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(update.feature, error_message=None) for update in request.feature_updates],
    )


def _objection(update: FeatureUpdateKey) -> str | None:
    feature = FEATURES.get(update.feature)
    if feature is None:
        return "This cluster does not have this feature."
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Unknown upgrade type."
    holds = update.max_version_level == feature.finalized
    return None if holds else f"Only level {feature.finalized} is supported."
