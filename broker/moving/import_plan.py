"""The plan of `barnabas import-kafka-logs`: what it takes over from a directory, what it leaves out, why it may refuse.

A refusal names the remedy. What is left out has no use here, or belongs to an unsupported feature; all of it is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.broker.metadata.features import FEATURES
from barnabas.broker.metadata.image import Leader, MetadataImage, TopicImage
from barnabas.broker.moving.kafka_metadata import KafkaMetadata
from barnabas.broker.settings.config import BROKER, check_topic_configs
from barnabas.broker.settings.keys import ConfigError
from barnabas.storage.errors import StorageError
from barnabas.storage.kafka_dir import Folder, KafkaDir
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.internal_topics import INTERNAL_TOPICS
from barnabas.wire.types import ZERO_UUID
from barnabas.wire.uuids import encode_uuid

_TIERED = ("__remote_log_metadata", "remote.storage.enable")
_SHARE_STATE = "__share_group_state"
#: Ids that name no directory: unassigned, lost, or from before directories had ids.
_NO_DIRECTORY = {ZERO_UUID[:-1] + bytes((number,)) for number in range(3)}


@dataclass
class Plan:
    """The new metadata, the folders to take over, and what is left out: (what, why)."""

    image: MetadataImage
    folders: dict[TopicPartition, Folder] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)

    def topic_ids(self) -> dict[TopicPartition, str]:
        return {key: encode_uuid(self.image.topics[key[0]].topic_id) for key in self.folders}


def plan_of(directory: KafkaDir, metadata: KafkaMetadata) -> Plan:
    """Make the plan. Raises StorageError if the directory cannot be taken over in its present state."""
    _check_nodes(directory, metadata)
    image = metadata.image
    plan = Plan(image)
    plan.left += [(name, why) for name, why in directory.passed_over]
    plan.left += [(f"metadata snapshot {name}", "damaged: read from the one before it") for name in metadata.damaged]
    plan.left += [(f"{what} ({count})", "not served by barnabas") for what, count in sorted(metadata.left.items())]
    for topic in image.topics.values():
        _check_topic(directory, metadata, topic)
        _plan_partitions(directory, topic, plan)
    for (name, number), folder in directory.partitions.items():
        if (name, number) not in plan.folders and not any(folder.name == what for what, _ in plan.left):
            plan.left.append((folder.name, "belongs to no topic in the metadata"))
    plan.left += list(_drop_configs(directory, image))
    if _SHARE_STATE in image.topics:
        plan.left.append(("share groups", "not served: the records of their topic come over, and are not used"))
    levels = {name: level for name, level in image.features.items() if name not in FEATURES and level}
    plan.left += [(f"feature {name} at level {level}", "not served by barnabas") for name, level in levels.items()]
    image.features = {name: feature.finalized for name, feature in FEATURES.items()}
    return plan


def _check_nodes(directory: KafkaDir, metadata: KafkaMetadata) -> None:
    me = {directory.node_id}
    if metadata.brokers - me:
        others = ", ".join(str(node) for node in sorted(metadata.brokers - me))
        raise StorageError(
            f"the cluster of {directory.path} has other brokers, too ({others}): move all partitions to node "
            f"{directory.node_id} with kafka-reassign-partitions.sh, and unregister the others"
        )
    quorum = metadata.controllers | metadata.voters
    if quorum - me:
        raise StorageError(
            f"the metadata of {directory.path} belongs to a quorum of other controllers, too "
            f"({', '.join(str(node) for node in sorted(quorum - me))}): only a node that is a broker and the only "
            "controller can be taken over. Mirror the topics instead, with MirrorMaker"
        )


def _check_topic(directory: KafkaDir, metadata: KafkaMetadata, topic: TopicImage) -> None:
    if topic.name == _TIERED[0] or topic.configs.get(_TIERED[1]) == "true":
        raise StorageError(
            f"topic {topic.name} uses tiered storage, and older segments of it are elsewhere: set "
            f"{_TIERED[1]}=false with remote.log.delete.on.disable=true in Kafka, or delete it there"
        )
    for number in topic.partitions:
        where = topic.topic_id, number
        replicas = metadata.replicas.get(where, [])
        if replicas != [directory.node_id]:
            nodes = ", ".join(str(node) for node in replicas)
            raise StorageError(
                f"partition {topic.name}-{number} has replicas on nodes {nodes}: reassign it to node "
                f"{directory.node_id} alone, with kafka-reassign-partitions.sh"
            )
        for each in metadata.directories.get(where, []):
            if each not in _NO_DIRECTORY and encode_uuid(each) != directory.directory_id:
                raise StorageError(
                    f"partition {topic.name}-{number} is in another log directory ({encode_uuid(each)}): move all "
                    "partitions into one with kafka-reassign-partitions.sh, which can name log directories"
                )


def _plan_partitions(directory: KafkaDir, topic: TopicImage, plan: Plan) -> None:
    own_id = encode_uuid(topic.topic_id)
    for number in topic.partitions:
        # From now on another node leads, so the epoch grows, as at every start of a broker.
        topic.partitions[number] = Leader(directory.node_id, topic.partitions[number].epoch + 1)
        folder = directory.partitions.get((topic.name, number))
        if folder is None:
            plan.left.append((f"{topic.name}-{number}", "has no folder: the partition will be empty"))
        elif folder.topic_id not in ("", own_id):
            plan.left.append((folder.name, "belongs to an earlier topic of that name: the partition will be empty"))
        else:
            plan.folders[topic.name, number] = folder


def _drop_configs(directory: KafkaDir, image: MetadataImage) -> Iterator[tuple[str, str]]:
    """Remove the settings that barnabas would refuse; yields each key and the reason. Values may be secrets."""
    for topic in image.topics.values():
        for key, value in list(topic.configs.items()):
            try:
                check_topic_configs({key: value})
            except ConfigError as error:
                del topic.configs[key]
                yield f"setting {key} of topic {topic.name}", str(error)
    for broker, configs in list(image.broker_configs.items()):
        for key, value in list(configs.items()):
            why = _why_not(directory, broker, key, value)
            if why is not None:
                del configs[key]
                yield f"setting {key} of {f'broker {broker}' if broker else 'all brokers'}", why


def _why_not(directory: KafkaDir, broker: str, key: str, value: str) -> str | None:
    if broker not in ("", str(directory.node_id)):
        return "belongs to another broker"
    known = BROKER.get(key)
    if known is None:
        return "not a key of barnabas"
    if not known.dynamic:
        return "set it in the config file: it cannot be changed while the broker runs"
    try:
        known.parse(value)
    except ConfigError as error:
        return str(error)
    return None


def rows(plan: Plan) -> Iterator[tuple[str, str, int, int, int, str]]:
    """For each topic: name, id, partitions, segments, bytes, settings."""
    for name, topic in sorted(plan.image.topics.items(), key=lambda item: (item[0] in INTERNAL_TOPICS, item[0])):
        folders = [plan.folders[name, number] for number in topic.partitions if (name, number) in plan.folders]
        segments = sum(len(folder.segments) for folder in folders)
        settings = " ".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
        yield (
            name,
            encode_uuid(topic.topic_id),
            len(topic.partitions),
            segments,
            sum(folder.size for folder in folders),
            settings,
        )
