"""When may a refused request come back, and how many come back all the same?

``slots.py`` paces returns, ``budget.py`` bounds retries that nobody paced, ``ticket.py`` lets a
client prove its slot elsewhere, ``desk.py`` recognises who comes.
"""

from tokenweir.core.returns.config import ReturnConfig
from tokenweir.core.returns.desk import Comer, ReturnDesk, Standing, ticket_of
from tokenweir.core.returns.slots import ReturnSlots, Slot

__all__ = ["Comer", "ReturnConfig", "ReturnDesk", "ReturnSlots", "Slot", "Standing", "ticket_of"]
