"""One connection: versions, addresses, and brokers that lie."""

from __future__ import annotations

import signal
import socket
import threading

import pytest

from barnabas.client.connection import MAX_ANSWER_BYTES, Address, Connection, parse_servers
from barnabas.client.errors import ClientError, LostError, RefusedError, UnknownFateError, check
from barnabas.client.tests.scripted import Answer, Raw, api, scripted
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.types import Message


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("", [("localhost", 9092)]),
        (" a:1 , b,", [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        (":9093", [("localhost", 9093)]),
    ],
)
def test_servers_are_a_list_of_addresses(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["a:b", "a:0", "a:70000", "::1", "::1:9092", "a:1,b:x", "a:-1"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ClientError, match=r"expected HOST:PORT"):
        parse_servers(text)


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("127.0.0.1", 9092)) == "127.0.0.1:9092"


def test_a_broker_on_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with scripted(host="::1") as broker:
        (address,) = parse_servers(f"[::1]:{broker.address.port}")
        assert Connection(address).ask(MetadataRequest(), MetadataResponse).brokers[0].host == "::1"


def test_the_highest_version_that_both_know_is_spoken() -> None:
    with scripted() as broker:
        broker.play[ApiVersionsRequest] = lambda _: ApiVersionsResponse(api_keys=[api(MetadataRequest, 0, 5)])
        connection = Connection(broker.address)
        connection.ask(MetadataRequest(), MetadataResponse)
        connection.ask(MetadataRequest(), MetadataResponse, last_version=4)
        assert broker.versions[-2:] == [5, 4]
        assert broker.requests[0].client_software_name == "barnabas"
        with pytest.raises(ClientError, match="does not serve ListGroups"):
            connection.ask(ListGroupsRequest(), ListGroupsResponse)
        assert connection.is_usable()


def test_a_broker_older_than_our_first_version_is_not_served() -> None:
    with scripted() as broker:
        newer = MetadataRequest.__wire__.versions.last + 1
        broker.play[ApiVersionsRequest] = lambda _: ApiVersionsResponse(api_keys=[api(MetadataRequest, newer, newer)])
        with pytest.raises(ClientError, match="does not serve Metadata"):
            Connection(broker.address).version_of(MetadataRequest)


def test_a_broker_that_knows_only_the_first_version_of_api_versions() -> None:
    def versions(request: ApiVersionsRequest) -> ApiVersionsResponse | Raw:
        if broker.versions[-1] > 0:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            body = b"\0\0\0\0" + message_codec(ApiVersionsResponse, 0).build(refusal)
            return Raw(len(body).to_bytes(4, "big") + body)
        return ApiVersionsResponse(api_keys=[api(MetadataRequest)])

    with scripted() as broker:
        broker.play[ApiVersionsRequest] = versions
        assert Connection(broker.address).version_of(MetadataRequest) == MetadataRequest.__wire__.versions.last
        assert broker.versions == [3, 0]


def test_nobody_listens() -> None:
    with scripted() as broker:
        pass
    with pytest.raises(LostError, match=r"Cannot connect to 127.0.0.1:\d+: Connection refused; is a broker running"):
        Connection(broker.address)


def frame(data: bytes) -> Raw:
    return Raw(len(data).to_bytes(4, "big") + data)


LIES: dict[str, Answer] = {
    "another correlation id": lambda _: frame(b"\0\0\0\x63" + bytes(40)),
    "a frame of 2 GiB": lambda _: Raw(b"\x7f\xff\xff\xff" + bytes(100)),
    "a frame beyond the bound": lambda _: Raw((MAX_ANSWER_BYTES + 1).to_bytes(4, "big")),
    "a frame of less than nothing": lambda _: Raw(b"\xff\xff\xff\xff"),
    "a frame without a correlation id": lambda _: Raw(b"\0\0\0\2\0\0"),
    "an answer that ends too soon": lambda _: frame(b"\0\0\0\1\0\0"),
    "an answer that is noise": lambda _: frame(b"\0\0\0\1" + b"\xff" * 50),
    "the end": lambda _: None,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_broker_that_lies_costs_the_connection(lie: str) -> None:
    play: dict[type[Message], Answer] = {MetadataRequest: LIES[lie], CreateTopicsRequest: LIES[lie]}
    with scripted(play) as broker:
        connection = Connection(broker.address)
        with pytest.raises(LostError, match=str(broker.address)):
            connection.ask(MetadataRequest(), MetadataResponse)
        assert not connection.is_usable()
        with pytest.raises(LostError, match="closed the connection"):
            connection.ask(MetadataRequest(), MetadataResponse)
        with pytest.raises(UnknownFateError, match="whether CreateTopics was carried out is not known"):
            Connection(broker.address).ask(CreateTopicsRequest(), CreateTopicsResponse)


def test_a_broker_that_closes_in_the_middle_of_an_answer() -> None:
    with scripted() as broker:

        def half(_: MetadataRequest) -> Raw:
            broker.play[MetadataRequest] = lambda _: None
            return Raw(b"\0\0\1\0" + bytes(20))

        broker.play[MetadataRequest] = half
        connection = Connection(broker.address)
        posted = connection.post(MetadataRequest())
        connection.post(MetadataRequest())
        with pytest.raises(LostError, match="closed the connection"):
            connection.answer(posted, MetadataResponse)


def test_a_connection_that_the_broker_has_closed_is_noticed_before_anything_is_asked() -> None:
    with scripted() as broker:
        connection = Connection(broker.address)
        assert connection.is_usable()
        broker.hang_up()
        assert not connection.is_usable()


def test_an_interrupt_ends_the_connection_whose_answer_was_awaited() -> None:
    def interrupts(_: MetadataRequest) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        released.wait()

    released = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with scripted({MetadataRequest: interrupts}) as broker:
            connection = Connection(broker.address)
            with pytest.raises(KeyboardInterrupt):
                connection.ask(MetadataRequest(), MetadataResponse)
            assert not connection.is_usable(), "the answer may yet come: nothing else may be asked there"
            released.set()
    finally:
        signal.signal(signal.SIGINT, before)


def test_error_codes_have_their_names_and_unknown_ones_their_numbers() -> None:
    with pytest.raises(RefusedError, match=r"^Topic t: INVALID_CONFIG \(no such key\)$") as refused:
        check(ErrorCode.INVALID_CONFIG, "Topic t", "no such key")
    assert (refused.value.code, refused.value.may_repeat) == (ErrorCode.INVALID_CONFIG, False)
    with pytest.raises(RefusedError, match=r"^Topic t: error 9999$") as refused:
        check(9999, "Topic t")
    assert not refused.value.may_repeat
    check(0, "Topic t")
