"""Six-field cron expressions, as Kubeflow's scheduler (robfig/cron 1.2) reads them, in UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import cron_descriptor
import croniter

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError

EXAMPLE = "0 0 3 * * 1"
_24_HOURS = cron_descriptor.Options()
_24_HOURS.use_24hour_time_format = True


@dataclass(frozen=True)
class Cron:
    """A valid cron expression.

    >>> print(Cron.parse("0 30 2 * * MON-FRI").words)
    At 02:30, Monday through Friday
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> "Cron":
        """Check an expression; raise ComponentError if Kubeflow's scheduler would refuse it, or no time matches it."""
        fields = text.split()
        if len(fields) != 6:
            hint = f'put the seconds first: "0 {text}"' if len(fields) == 5 else f'write for example "{EXAMPLE}"'
            received = f'cron "{text}": {len(fields)} fields'
            raise ComponentError(received, "six: second minute hour day-of-month month day-of-week", hint)
        cron = cls(" ".join(fields))
        unsupported = [field for field in fields if re.search(r"[LW#]", re.sub(r"[A-Z]{3}", "", field.upper()))]
        if unsupported or "7" in re.split(r"[-,/]", fields[5]):
            received = f'cron "{text}": {unsupported[0] if unsupported else fields[5]}'
            expected = "what Kubeflow's scheduler supports: numbers, names, lists, ranges, steps, * and ?; Sunday is 0"
            raise ComponentError(received, expected, f'write for example "{EXAMPLE}", 03:00 every Monday')
        try:
            cron.next(datetime.now(UTC), 1)
        except (croniter.CroniterError, ValueError) as error:
            received = f'cron "{text}": {first_line(error)}'
            expected = "an expression that some time matches"
            raise ComponentError(received, expected, f'write for example "{EXAMPLE}"') from error
        return cron

    @property
    def words(self) -> str:
        """Describe the expression in words."""
        return str(cron_descriptor.get_description(self.text, _24_HOURS))

    def next(self, after: datetime, count: int = 3) -> list[datetime]:
        """Compute the next matching times."""
        times = croniter.croniter(self.text, after, second_at_beginning=True, max_years_between_matches=5)
        return [times.get_next(datetime) for _ in range(count)]
