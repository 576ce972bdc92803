"""Publishes events to badged from a chat backend. https://github.com/badged/badged"""

from .events import Event
from .publisher import EventError, PublishError, Publisher, Receipt

__all__ = ["Event", "EventError", "PublishError", "Publisher", "Receipt"]
