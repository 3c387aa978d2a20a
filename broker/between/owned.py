"""Which requests the owner of the metadata alone carries out: those that change it, and those that ask about that."""

#: Names of APIs.
OWNERS = frozenset(
    (
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs"),
        *("CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials"),
        *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
        *("AlterPartitionReassignments", "ListPartitionReassignments", "ElectLeaders"),
        *("UpdateFeatures", "UnregisterBroker", "DescribeQuorum"),
    )
)
