"""What a source hands to the border: a value with its place, or the reason why there is none."""

from dataclasses import dataclass

from prbench.errors import DataError
from prbench.schema import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row as it was read, still unchecked."""

    where: str  # `file:line`
    value: Json = None
    problem: str = ""  # "fact. remedy", for a row that could not be read

    def refusal(self) -> DataError:
        """The one line about a row that could not be read."""
        return DataError(f"{self.where}: row: {self.problem}.")
