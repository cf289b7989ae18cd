# Types of the public names, for type checkers and editors: `tfopt/__init__.py` loads the names on first use.

from tfopt.component import Between as Between
from tfopt.component import Group as Group
from tfopt.component import Input as Input
from tfopt.component import Output as Output
from tfopt.component import Reads as Reads
from tfopt.component import SameOutput as SameOutput
from tfopt.component import component as component
from tfopt.component import find as find
from tfopt.dag.tracing import Steps as Steps
from tfopt.errors import ComponentError as ComponentError
from tfopt.optimization import optimize as optimize

PUBLIC: dict[str, str]
__version__: str
