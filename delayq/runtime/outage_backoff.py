"""How a consumer waits for a server that is unavailable or refuses it."""

from __future__ import annotations

from collections.abc import Callable

from delayq.errors import LoginRefused, ServerError, StoreError
from delayq.model.outage import Outage
from delayq.runtime.effects import CloseListeners, Effects, Sleep


class OutageBackoff(Outage):
    """An outage that a consumer rides out."""

    def ride_out(
        self, step: Effects[None], on_outage: Callable[[], None], heeds_refusals: bool = False
    ) -> Effects[None]:
        """Take a step; if the server is unavailable or refuses it, wait instead of raising.

        Args:
            on_outage: called after a step has failed and the wait is over.
            heeds_refusals: raise LoginRefused: nobody may be there to grant the right that is missing.
        """
        try:
            yield from step
        except (ServerError, StoreError) as error:
            if heeds_refusals and isinstance(error, LoginRefused):
                raise
            yield Sleep(self.lost(error))
            on_outage()
            yield CloseListeners()
        else:
            self.served()
