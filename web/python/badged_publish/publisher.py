"""The publisher: batches, order and retries."""

import json
import os
import random
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Deque, List, NamedTuple, Optional, Sequence
from urllib.parse import urlsplit

from .events import Event
from .request import Outcome, post

# A request has at most 8 MiB. A call that is longer is sent alone, and refused.
_MAX_BYTES = 4 * 1024 * 1024
_MIN_PAUSE = 0.1
_MAX_PAUSE = 10.0


class Receipt(NamedTuple):
    """Says that events are durable in the log."""

    position: str
    """For at_least, to read a badge that includes the events."""


class EventError(NamedTuple):
    """What is wrong with an event."""

    index: int
    """The event, by its index in the call."""
    field: Optional[str]
    """The path of the field, such as data.seq; None if the event as a whole is at fault."""
    message: str

    def __str__(self) -> str:
        return f"event {self.index}: {f'{self.field}: ' if self.field else ''}{self.message}"


class PublishError(Exception):
    """Why events were not published.

    status is that of the answer, None if there was none. errors are the bad events. If
    retryable, nothing is wrong with the events, and publishing the same ones again may
    succeed; those that were stored after all count once.
    """

    def __init__(self, message: str, status: Optional[int] = None, errors: Sequence[EventError] = (), retryable: bool = False):
        super().__init__("; ".join([message, *map(str, errors)]))
        self.status = status
        self.errors = tuple(errors)
        self.retryable = retryable


class _Call:
    """A call of publish. Its events are sent in one request."""

    def __init__(self, events: List[bytes], give_up_at: float):
        self.events = events
        self.bytes = sum(map(len, events)) + len(events)
        self.give_up_at = give_up_at
        self.future: "Future[Receipt]" = Future()
        self.future.set_running_or_notify_cancel()  # what is published cannot be canceled


class Publisher:
    """Publishes events in order, from any number of threads.

    What is published while a request is under way shares the next one. While badged is away
    or busy, the events are sent again: an event counts once.

    url is where badged listens, key a publisher key, source that of events that name none.
    Events are sent again for give_up_after seconds; a request may take timeout seconds and
    has at most max_batch events; at most max_waiting events wait, beyond that publishing
    fails at once.
    """

    def __init__(
        self,
        url: str,
        key: str,
        source: Optional[str] = None,
        *,
        give_up_after: float = 60.0,
        timeout: float = 10.0,
        max_batch: int = 1000,
        max_waiting: int = 100_000,
    ):
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise ValueError(f"url: {url!r} is no URL with http or https")
        if not key or not all("!" <= c <= "~" for c in key):
            raise ValueError("key: give a publisher key, without spaces")
        limits = {"give_up_after": give_up_after, "timeout": timeout, "max_batch": max_batch, "max_waiting": max_waiting}
        for name, value in limits.items():
            if not value > 0:
                raise ValueError(f"{name}: {value} is not positive")
        self._url = url.rstrip("/") + "/v1/events"
        self._key = key
        self._source = source
        self._give_up_after = give_up_after
        self._timeout = timeout
        self._max_batch = min(max_batch, 10_000)
        self._max_waiting = max_waiting
        self._queue: Deque[_Call] = deque()
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._process = os.getpid()

    def publish(self, *events: Event) -> Receipt:
        """Publishes events, all or none, and returns when they are durable in the log.

        Raises PublishError, and ValueError or TypeError for what JSON cannot say.
        """
        return self.submit(*events).result()

    def submit(self, *events: Event) -> "Future[Receipt]":
        """Publishes events without waiting for them. With asyncio, await asyncio.wrap_future(...)."""
        if not events:
            raise ValueError("publish: give at least one event")
        if self._process != os.getpid():
            raise RuntimeError("the publisher was made before a fork: make one in each process")
        encoded = [self._encode(event) for event in events]
        call = _Call(encoded, time.monotonic() + self._give_up_after)
        with self._changed:
            if self._closed:
                raise PublishError("the publisher is closed")
            if self._waiting > 0 and self._waiting + len(events) > self._max_waiting:
                message = f"{self._waiting} events are waiting, the limit is {self._max_waiting}"
                raise PublishError(message, retryable=True)
            self._waiting += len(events)
            self._queue.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="badged-publish", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return call.future

    def close(self) -> None:
        """Waits for what was published, and publishes nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode(self, event: Event) -> bytes:
        whole = {"specversion": "1.0", **({} if self._source is None else {"source": self._source}), **event}
        return json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                calls = self._take()
            try:
                self._send(calls)
            except Exception as error:  # a fault of this package: publish returns all the same
                for call in calls:
                    if not call.future.done():
                        self._finish(call, PublishError(f"publish: {error!r}", retryable=True))

    def _take(self) -> List[_Call]:
        """Takes the calls of the next request."""
        calls: List[_Call] = []
        events = size = 0
        while self._queue:
            events += len(self._queue[0].events)
            size += self._queue[0].bytes
            if calls and (events > self._max_batch or size > _MAX_BYTES):
                break
            calls.append(self._queue.popleft())
        return calls

    def _send(self, calls: List[_Call]) -> None:
        """Sends calls as one request until each is stored, refused or given up."""
        failures = 0
        while calls:
            body = b"[" + b",".join(event for call in calls for event in call.events) + b"]"
            outcome = post(self._url, self._key, body, self._timeout)
            if outcome.position is not None:
                for call in calls:
                    self._finish(call, Receipt(outcome.position))
                return
            if not outcome.again:
                self._refused(calls, outcome)
                return
            pause = outcome.after + random.uniform(0, min(_MAX_PAUSE, _MIN_PAUSE * 2**failures))
            failures = min(failures + 1, 32)
            until = time.monotonic() + pause
            for call in calls:
                if call.give_up_at < until:
                    self._finish(call, PublishError(outcome.message, outcome.status, retryable=True))
            calls = [call for call in calls if call.give_up_at >= until]
            if calls:
                time.sleep(pause)

    def _refused(self, calls: List[_Call], outcome: Outcome) -> None:
        """Refuses the calls at fault, and sends the others. Nothing of the request was stored."""
        good: List[_Call] = []
        first = 0
        for call in calls:
            last = first + len(call.events)
            errors = [
                EventError(error["index"] - first, error.get("field"), error["message"])
                for error in outcome.errors
                if first <= error["index"] < last
            ]
            first = last
            if not errors and len(calls) > 1:
                good.append(call)
                continue
            self._finish(call, PublishError(outcome.message, outcome.status, errors))
        if len(good) < len(calls):
            self._send(good)
            return
        for call in good:  # the answer names no event: each call gets its own
            self._send([call])

    def _finish(self, call: _Call, result: object) -> None:
        with self._changed:
            self._waiting -= len(call.events)
        if isinstance(result, Receipt):
            call.future.set_result(result)
        else:
            call.future.set_exception(result)  # type: ignore[arg-type]
