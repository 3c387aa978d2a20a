"""The service with a real broker."""

from fastapi.testclient import TestClient
from service import service

from barnabas.testing import Broker

SHIRTS = {"item": "shirt", "count": 2}
SHOES = {"item": "shoes", "count": 1}


def test_an_order_is_kept(barnabas_broker: Broker, barnabas_topic: str) -> None:
    client = TestClient(service(barnabas_broker.bootstrap_servers, barnabas_topic))
    assert client.post("/orders", json=SHIRTS).status_code == 201
    assert client.post("/orders", json=SHOES).status_code == 201
    assert client.get("/orders/10").json() == [SHIRTS, SHOES]
    assert client.get("/orders/1").json() == [SHOES]


def test_what_is_no_order_is_refused(barnabas_broker: Broker, barnabas_topic: str) -> None:
    client = TestClient(service(barnabas_broker.bootstrap_servers, barnabas_topic))
    assert client.post("/orders", json={"item": "shirt", "count": "many"}).status_code == 422
    assert client.get("/orders/10").json() == []


def test_it_says_so_while_the_broker_is_away_and_goes_on_when_it_is_back() -> None:
    with Broker() as broker:
        client = TestClient(service(broker.bootstrap_servers, "orders"))
        assert client.post("/orders", json=SHIRTS).status_code == 201
        broker.kill()
        assert client.post("/orders", json=SHOES).status_code == 503
        broker.start()
        assert client.post("/orders", json=SHOES).status_code == 201
        assert client.get("/orders/10").json() == [SHIRTS, SHOES]
