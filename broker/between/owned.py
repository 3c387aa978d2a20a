"""The APIs that only the owner of the metadata carries out: those that change it, and those that ask about changes."""

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
