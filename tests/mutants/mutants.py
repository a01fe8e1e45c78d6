"""All mutants, and the promises they break."""

from tests.mutants.moving import DOORS, READING, TIERING
from tests.mutants.mutant import Mutant
from tests.mutants.storing import BYTES, KEEPING

PROMISES = tuple(f"P{number}" for number in range(1, 11))
MUTANTS: tuple[Mutant, ...] = BYTES + KEEPING + TIERING + READING + DOORS
