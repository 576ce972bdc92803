"""One request that publishes events, which stores all of them or none."""

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import List, NamedTuple, Optional

# The answers after which the same request may succeed.
_AGAIN = {408, 425, 429, 500, 502, 503, 504}


class Outcome(NamedTuple):
    """How a request ended: stored with a position, to be sent again, or refused."""

    position: Optional[str] = None
    again: bool = False
    message: str = ""
    status: Optional[int] = None
    after: float = 0.0
    errors: List[dict] = []


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None  # it would lose the body


_opener = urllib.request.build_opener(_NoRedirects)


def post(url: str, key: str, body: bytes, timeout: float) -> Outcome:
    """Sends events. It does not fail."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with _opener.open(request, timeout=timeout) as answer:
            if answer.status == 202:
                return Outcome(position=answer.headers.get("Badged-Position", ""))
            return Outcome(message=f"{url} answered {answer.status}", status=answer.status)
    except urllib.error.HTTPError as error:
        return _refusal(url, error)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return Outcome(again=True, message=f"{url} did not answer: {reason!r}")


def _refusal(url: str, error: urllib.error.HTTPError) -> Outcome:
    with error:
        try:
            problem = json.loads(error.read())
        except (OSError, ValueError, http.client.HTTPException):
            problem = None  # of a proxy
    if not isinstance(problem, dict):
        problem = {}
    message = f"{url} answered {error.code}: {problem.get('detail') or error.reason}"
    if error.code in _AGAIN:
        return Outcome(again=True, message=message, status=error.code, after=_pause(error.headers.get("Retry-After")))
    return Outcome(message=message, status=error.code, errors=problem.get("errors") or [])


def _pause(header: Optional[str]) -> float:
    """Returns the seconds of a Retry-After, which is in seconds or a date."""
    if header is None:
        return 0.0
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
