"""Load a properties file as its user does: a Kafka client, librdkafka, or the broker. A mistake is an error."""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.broker.main import load_config
from barnabas.broker.settings.config import read_properties
from barnabas.client.security import of_file


def main(file: str) -> int:
    properties = read_properties(Path(file))
    if properties.get("security.protocol", "").isupper():
        of_file(file)
    elif "security.protocol" in properties or "bootstrap.servers" in properties:
        import confluent_kafka

        confluent_kafka.Producer(properties)
    elif unknown := load_config(file, None, [], []).unknown:
        print(f"the broker does not know {', '.join(unknown)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
