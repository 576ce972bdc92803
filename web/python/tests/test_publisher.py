import json
import os
import threading
import unittest
from concurrent.futures import wait
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import get_args

from badged_publish import Event, PublishError, Publisher

STORED = (202, {"Badged-Position": "17"}, {"accepted": 1})


def answer(status, problem=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, headers, {"type": "urn:badged:problem", **(problem or {})}


def message(id, seq=1):
    return {"id": id, "type": "message.delivered", "data": {"conversation_id": "c", "seq": seq, "user_ids": ["ada"]}}


class PublisherTest(unittest.TestCase):
    def serve(self, *answers):
        """Serves these answers, one a request, then stores everything. None breaks the connection."""
        answers = list(answers)
        self.requests = []
        self.arrived, self.release = threading.Event(), threading.Event()
        self.release.set()
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                test.requests.append(events)
                test.arrived.set()
                test.release.wait()
                given = answers.pop(0) if answers else STORED
                if callable(given):
                    given = given(events)
                if given is None:
                    self.close_connection = True
                    return
                status, headers, body = given
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def publisher(self, **settings):
        publisher = Publisher(self.url, "k", source="chat", **settings)
        self.addCleanup(publisher.close)
        return publisher

    def ids(self):
        return [[event["id"] for event in events] for events in self.requests]

    def submit_together(self, publisher, *calls):
        """Submits calls while a request is under way, so that they share the next ones."""
        self.release.clear()
        first = publisher.submit(message("first"))
        self.arrived.wait()
        futures = [publisher.submit(*call) for call in calls]
        self.release.set()
        wait([first, *futures])
        return futures

    def test_an_event_is_sent_with_version_and_source_and_gives_its_position(self):
        self.serve()
        self.assertEqual(self.publisher().publish(message("a", 1234567890123456789)).position, "17")
        data = {"conversation_id": "c", "seq": 1234567890123456789, "user_ids": ["ada"]}
        self.assertEqual(
            self.requests, [[{"specversion": "1.0", "source": "chat", "id": "a", "type": "message.delivered", "data": data}]]
        )

    def test_what_is_published_during_a_request_shares_the_next_one_in_order(self):
        self.serve()
        self.submit_together(self.publisher(), [message("a")], [message("b"), message("c")], [message("d")])
        self.assertEqual(self.ids(), [["first"], ["a", "b", "c", "d"]])

    def test_a_request_has_a_limited_number_of_events_and_a_call_is_not_divided(self):
        self.serve()
        calls = [message("a")], [message("b"), message("c"), message("d")], [message("e")]
        self.submit_together(self.publisher(max_batch=2), *calls)
        self.assertEqual(self.ids(), [["first"], ["a"], ["b", "c", "d"], ["e"]])

    def test_the_same_events_are_sent_again_while_the_server_is_busy_or_away(self):
        self.serve(answer(429, Retry_After="0"), answer(503), None)
        self.publisher().publish(message("a"), message("b"))
        self.assertEqual(self.ids(), [["a", "b"]] * 4)

    def test_retry_after_is_the_least_pause_and_events_are_given_up_in_time(self):
        self.serve(answer(429, {"detail": "behind"}, Retry_After="60"))
        with self.assertRaisesRegex(PublishError, "answered 429: behind") as caught:
            self.publisher(give_up_after=1).publish(message("a"))
        self.assertEqual((caught.exception.status, caught.exception.retryable), (429, True))
        self.assertEqual(self.ids(), [["a"]])

    def test_a_server_that_does_not_answer_is_named(self):
        with self.assertRaisesRegex(PublishError, "127.0.0.1:1/v1/events did not answer: ") as caught:
            Publisher("http://127.0.0.1:1", "k", give_up_after=0.001).publish(message("a"))
        self.assertTrue(caught.exception.retryable)

    def test_calls_with_bad_events_are_refused_alone_with_the_index_in_the_call(self):
        def refuse(events):
            bad = [i for i, event in enumerate(events) if event["id"] in "cd"]
            errors = [{"index": i, "field": "data.seq", "message": "must be at least 1"} for i in bad]
            return answer(400, {"detail": "2 bad events", "errors": errors})

        self.serve(STORED, refuse)
        calls = [message("a")], [message("b"), message("c")], [message("d")], [message("e")]
        a, c, d, e = self.submit_together(self.publisher(), *calls)
        self.assertEqual((a.result().position, e.result().position), ("17", "17"))
        self.assertIsNotNone(d.exception())
        self.assertEqual(c.exception().errors, ((1, "data.seq", "must be at least 1"),))
        self.assertFalse(c.exception().retryable)
        self.assertRegex(str(c.exception()), "event 1: data.seq: must be at least 1")
        self.assertEqual(self.ids(), [["first"], ["a", "b", "c", "d", "e"], ["a", "e"]])

    def test_after_a_refusal_that_names_no_event_each_call_gets_its_own_answer(self):
        self.serve(STORED, answer(413), STORED, answer(413, {"detail": "too large"}))
        small, large = self.submit_together(self.publisher(), [message("a")], [message("b")])
        self.assertEqual(small.result().position, "17")
        self.assertRegex(str(large.exception()), "413: too large")

    def test_an_answer_that_badged_does_not_give_refuses_the_call(self):
        self.serve((400, {}, {"errors": [7]}), (302, {"Location": "/"}, []), (200, {}, {}))
        for status in (400, 302, 200):
            with self.assertRaises(PublishError) as caught:
                self.publisher().publish(message("a"))
            self.assertIn(caught.exception.status, (status, None))

    def test_events_wait_up_to_a_limit(self):
        self.serve()
        publisher = self.publisher(max_waiting=2)
        self.release.clear()
        two = publisher.submit(message("a"), message("b"))
        with self.assertRaisesRegex(PublishError, "2 events are waiting, the limit is 2"):
            publisher.publish(message("c"))
        self.release.set()
        two.result()
        publisher.publish(message("d"), message("e"), message("f"))  # alone, as large as it is

    def test_close_waits_for_what_was_published_and_ends_publishing(self):
        self.serve(answer(503))
        publisher = self.publisher()
        published = publisher.submit(message("a"))
        publisher.close()
        self.assertEqual(published.result(timeout=0).position, "17")
        with self.assertRaisesRegex(PublishError, "closed"):
            publisher.publish(message("b"))

    def test_a_publisher_does_not_survive_a_fork(self):
        self.serve()
        publisher = self.publisher()
        child = os.fork()
        if child == 0:
            try:
                publisher.submit(message("a"))
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)

    def test_settings_that_cannot_work_are_refused(self):
        for settings, says in [
            ({"url": "badged"}, "url: 'badged' is no URL"),
            ({"key": ""}, "key: "),
            ({"timeout": 0}, "timeout: 0 is not positive"),
        ]:
            with self.assertRaisesRegex(ValueError, says):
                Publisher(**{"url": "http://badged", "key": "k", **settings})
        with self.assertRaises(ValueError):
            Publisher("http://badged", "k").publish()

    def test_every_type_of_event_has_its_fields(self):
        self.assertIn("message.delivered", [get_args(t.__annotations__["type"])[0] for t in get_args(Event)])


if __name__ == "__main__":
    unittest.main()
