"""The MQTT broker of a run: embedded, a managed mosquitto, or one that is already there."""

from coordinator.broker.address import outward, url
from coordinator.broker.choose import RunningBroker, open_broker
from coordinator.broker.limits import BrokerLimits

__all__ = ["BrokerLimits", "RunningBroker", "open_broker", "outward", "url"]
