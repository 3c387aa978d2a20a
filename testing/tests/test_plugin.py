"""The fixtures, in a separate run of pytest that finds them by the installed package's entry point."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_a_topic_for_each_test_and_the_log_of_the_broker_with_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        seen = []

        @pytest.fixture(scope="session")
        def barnabas_properties():
            return {"num.partitions": 2}

        def send(broker, topic):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce(topic, b"x")
            assert producer.flush(60) == 0

        @pytest.mark.parametrize("n", ["a", "\\u00e9 / :"])
        def test_passes(barnabas_broker, barnabas_topic, n):
            send(barnabas_broker, barnabas_topic)
            assert barnabas_topic.startswith("test_passes")
            seen.append((barnabas_broker.port, barnabas_topic))

        def test_properties(barnabas_broker):
            send(barnabas_broker, "made-by-itself")
            admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})
            assert len(admin.list_topics("made-by-itself", 60).topics["made-by-itself"].partitions) == 2
            assert len(set(seen)) == 2 and len({port for port, _ in seen}) == 1

        def test_fails(barnabas_broker):
            barnabas_broker.create_topic("of-this-test")
            assert False

        def test_fails_without_a_broker():
            assert False
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=2)
    text = result.stdout.str()
    assert text.count("- barnabas -") == 1
    shown = text.split("- barnabas -")[1].split("test_fails_without_a_broker")[0]
    assert "of-this-test" in shown
    assert "made-by-itself" not in shown


def test_a_broker_of_several_nodes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def barnabas_processes():
            return 2

        def test_it(barnabas_broker, barnabas_topic):
            assert barnabas_broker.nodes == [1, 2]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_no_broker_is_started_for_who_asks_for_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*barnabas is ready*")
