"""The MQTT broker of a run: embedded, a managed mosquitto, or one that is already there."""

from coordinator.broker.address import is_loopback, outward
from coordinator.broker.choose import RunningBroker, open_broker
from coordinator.broker.limits import BrokerLimits
from coordinator.broker.rules import Rules

__all__ = ["BrokerLimits", "Rules", "RunningBroker", "is_loopback", "open_broker", "outward"]
