"""The key ``notify`` of a run file: who is notified, and about what."""

from tfopt.declaration.yaml_entries import Entry
from tfopt.error_messages import nearest
from tfopt.notifications.events import KINDS
from tfopt.notifications.receiver import Receiver
from tfopt.value_types import JsonObject

DESCRIPTIONS = {
    "url": "The address that gets an HTTP POST about each event.",
    "events": f"The events that are reported: {', '.join(KINDS)} (default: all).",
    "stale_days": "Days without a push after which stale is reported (default: 30).",
    "timeout": "Seconds within which the receiver must answer (default: 10).",
    "headers": "Headers of the request, such as Authorization: Bearer ${TOKEN}.",
    "body": "A Jinja template of the request's body (default: the event as JSON).",
}


def read_receiver(entry: Entry) -> Receiver:
    """Return the receiver of the key ``notify``; raise ComponentError, with the line, for a wrong setting."""
    entries = entry.mapping(list(DESCRIPTIONS))
    if "url" not in entries:
        raise entry.error("notify without url", "the address of the receiver", "add url: https://HOST/PATH")
    events = entries["events"].texts() if "events" in entries else list(KINDS)
    for kind in events:
        if kind not in KINDS:
            raise entries["events"].error(f"notify.events: {kind}", f"some of {', '.join(KINDS)}", nearest(kind, KINDS))
    headers = entries["headers"].mapping() if "headers" in entries else {}
    receiver = Receiver(
        url=entries["url"].text(),
        events=tuple(events),
        stale_days=_number(entries.get("stale_days"), Receiver.stale_days),
        timeout=_number(entries.get("timeout"), Receiver.timeout),
        headers={name: value.text() for name, value in headers.items()},
        body=entries["body"].text() if "body" in entries else "",
    )
    with entry.named():
        receiver.check()
    return receiver


def _number(entry: Entry | None, default: float) -> float:
    if entry is None:
        return default
    try:
        value = float(entry.text())
    except ValueError:
        value = 0.0
    if not 0 < value <= 3650:
        raise entry.error(f"{entry.name}: {entry.text()}", "a number above 0", f"write {entry.name}: {default:g}")
    return value


def notify_schema() -> JsonObject:
    """Return the JSON schema of the key."""
    text: JsonObject = {"type": ["string", "null"]}
    forms: dict[str, JsonObject] = {
        "events": {"type": ["string", "array", "null"], "items": {"enum": list(KINDS)}},
        "stale_days": {"type": ["number", "string", "null"]},
        "timeout": {"type": ["number", "string", "null"]},
        "headers": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}},
    }
    return {
        "description": "Who is notified by tfopt run and tfopt notify, and about what.",
        "type": ["object", "null"],
        "properties": {key: {"description": DESCRIPTIONS[key], **forms.get(key, text)} for key in DESCRIPTIONS},
        "required": ["url"],
        "additionalProperties": False,
    }
