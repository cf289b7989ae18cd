"""The receiver of notifications: a web address, and what is sent to it."""

import http.client
import json
import queue
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

import tfopt
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.notifications.events import KINDS, Event
from tfopt.reports import report_schema
from tfopt.value_types import JsonObject

CONTENT_TYPE, JSON = "Content-Type", "application/json"
# With what a template must be able to deal.
EXAMPLE = Event("id", "not_blessed", "2026-01-31T12:00:00+00:00", "p", "d", 1, 'not blessed: "quotes",\nlines, \\, ü')


class NoAnswerError(Exception):
    """The receiver cannot be reached, or does not answer in time."""


class RefusalError(Exception):
    """The receiver answered that it did not take the notification."""


@dataclass(frozen=True)
class Receiver:
    """A receiver of notifications."""

    url: str
    events: tuple[str, ...] = KINDS  # the kinds that it gets
    stale_days: float = 30.0  # days without a push after which ``stale`` is reported
    timeout: float = 10.0  # seconds within which it must answer
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""  # a Jinja template; if it is empty, the event as JSON is sent

    @property
    def name(self) -> str:
        """Return the host, for messages: path, query and headers may contain secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def check(self) -> None:
        """Raise ComponentError for a URL, header or template that cannot be sent; errors do not contain secrets."""
        try:
            parts = urlsplit(self.url)
            is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_complete = False
        if not is_complete or not re.fullmatch(r"[!-~]+", self.url):
            fix = "write url: https://HOST/PATH; characters such as spaces as %20"
            raise ComponentError("notify.url: no such address", "an address with http or https", fix)
        if "@" in parts.netloc:
            fix = "write headers: {Authorization: 'Basic ${TOKEN}'}"
            raise ComponentError("notify.url with a user", "an address without user and password", fix)
        for name, value in self.headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(r"[\t -~\xa0-\xff]*", value):
                expected = "a name without spaces, and one line of text"
                raise ComponentError(f"notify.headers.{name}", expected, "remove line breaks and special characters")
        self._check_body()

    def _check_body(self) -> None:
        try:
            content = self.content(EXAMPLE).decode()
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            names = ", ".join(self._values(EXAMPLE))
            expected = f"a Jinja template with the names {names}"
            received = f"notify.body: {first_line(error)}"
            raise ComponentError(received, expected, 'write for example {"text": {{ text | tojson }}}') from error
        if not self._headers()[CONTENT_TYPE].startswith(JSON):
            return
        try:
            json.loads(content)
        except ValueError as error:
            received = f"notify.body makes no JSON of a text with quotes and lines: {first_line(error)}"
            fix = f"write {{{{ text | tojson }}}} without quotes around it, or set the header {CONTENT_TYPE}"
            raise ComponentError(received, f"JSON, because the {CONTENT_TYPE} is {JSON}", fix) from error

    def content(self, event: Event) -> bytes:
        """Return the body of the request about an event."""
        values = self._values(event)
        if not self.body:
            return json.dumps(values, ensure_ascii=False).encode()
        environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)
        return environment.from_string(self.body).render(values).encode()

    def send(self, event: Event) -> None:
        """Send a notification about an event.

        Raises:
            NoAnswerError: If the receiver cannot be reached, or does not answer in time.
            RefusalError: If it answers with anything but success.
        """
        headers = {**self._headers(), "Idempotency-Key": event.id}
        request = urllib.request.Request(self.url, self.content(event), headers, method="POST")
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        # The time limit of a socket is for each part of an answer: one that comes byte by byte would have no end.
        threading.Thread(target=lambda: answers.put(self._post(request)), daemon=True).start()
        try:
            error = answers.get(timeout=self.timeout)
        except queue.Empty:
            raise self._no_answer() from None
        if error:
            raise error

    def _post(self, request: urllib.request.Request) -> Exception | None:
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout):
                return None
        except urllib.error.HTTPError as error:
            with error:
                return RefusalError(f"HTTP {error.code} {error.reason}"[:200])
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                return self._no_answer()
            return NoAnswerError(first_line(reason) or type(error).__name__)

    def _no_answer(self) -> NoAnswerError:
        return NoAnswerError(f"no answer within {self.timeout:g} s")

    def _headers(self) -> dict[str, str]:
        own = {name.title(): value for name, value in self.headers.items()}
        return {CONTENT_TYPE: JSON, "User-Agent": f"tfopt/{tfopt.__version__}"} | own

    @staticmethod
    def _values(event: Event) -> JsonObject:
        values = report_schema.dump(event)
        return {key: value for key, value in values.items() if key != report_schema.VERSION_KEY}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: urllib would repeat the request without its body, and take that for a delivery."""

    def redirect_request(self, *_: object) -> None:
        return None
